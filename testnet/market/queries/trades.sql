-- What a trader makes of trades: the mean price weighted by size (VWAP), bars, and symbols that
-- rise together. A minute is named by its beginning.
CREATE QUERY trading AS BEGIN
    CREATE STREAM vwap AS
    SELECT window_start AS minute, symbol,
        sum(cast(round(price * 10000) AS LONG) * size) / 10000 / sum(size) AS vwap,
        sum(size) AS volume, count(*) AS trades
    FROM TUMBLE(TABLE trades, DESCRIPTOR(time), INTERVAL '1' MINUTE)
    GROUP BY window_start, symbol;

    CREATE STREAM bars AS
    SELECT window_start AS minute, symbol, firstval(price) AS open, max(price) AS high,
        min(price) AS low, lastval(price) AS close, sum(size) AS volume
    FROM TUMBLE(TABLE trades, DESCRIPTOR(time), INTERVAL '1' MINUTE)
    GROUP BY window_start, symbol;

    -- A share has moved if it rose by more than 5 hundredths of a percent from the first trade of
    -- the minute to the last. Prices are whole hundredths of a cent: a double would decide some of
    -- those that rose by exactly as much.

    CREATE TEMPORARY STREAM moved AS
    SELECT minute, symbol, (last - first) / 10000 / (first / 10000) AS change
    FROM (
        SELECT minute, symbol, cast(round(open * 10000) AS LONG) AS first,
            cast(round(close * 10000) AS LONG) AS last
        FROM bars
    ) WHERE (last - first) * 10000 > first * 5;

    CREATE STREAM together AS
    SELECT a.minute AS minute, a.symbol AS one, b.symbol AS other, a.change AS change_of_one,
        b.change AS change_of_other
    FROM moved AS a JOIN moved AS b
        ON b.minute = a.minute AND b.stime = a.stime AND a.symbol < b.symbol;
END;
