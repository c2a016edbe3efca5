-- Query 19, top ten: the ten highest bids on each auction. The answer is the final state of an
-- updating table. Of equal bids the oracle puts the earlier first; the text leaves that open.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q19.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT *
FROM (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
    FROM bid
) AS ranked
WHERE rank_number <= 10
