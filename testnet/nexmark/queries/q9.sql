-- Query 9, winning bids: the highest bid on each auction while it was open, the earlier of equals.
-- The answer is the final state of an updating table.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q9.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT
    id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
    auction, bidder, price, bid_dateTime, bid_extra
FROM (
    SELECT
        a.*,
        b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime ASC) AS place
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
) AS ranked
WHERE place <= 1
