-- Query 21, add channel id: the bids that have one, by the name of the channel or by the url.
-- REGEXP_EXTRACT gives NULL where nothing matches.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q21.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT
    auction, bidder, price, channel,
    CASE LOWER(channel)
        WHEN 'apple' THEN '0'
        WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2'
        WHEN 'baidu' THEN '3'
        ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
    END AS channel_id
FROM bid
WHERE LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')
    OR REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
