-- Query 22, url directories: the first three folders of the url of each bid. SPLIT_INDEX counts
-- from 0.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q22.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT
    auction, bidder, price, channel,
    SPLIT_INDEX(url, '/', 3) AS dir1,
    SPLIT_INDEX(url, '/', 4) AS dir2,
    SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
