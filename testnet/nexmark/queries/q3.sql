-- Query 3, local item suggestion: who sells in Oregon, Idaho or California, category 10, and which
-- auctions? Both sides are kept for ever: neither has a window.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q3.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT p.name, p.city, p.state, a.id
FROM auction AS a
INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
