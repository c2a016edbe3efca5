-- What a trader makes of two exchanges: the quotes of both as of each trade, the best of them, and
-- the moments when the market is crossed, that is, when one exchange buys for more than the other
-- sells for. A quote counts until the next of the symbol, for an hour at most.
CREATE QUERY quoting WITH (within = INTERVAL '1' HOUR) AS BEGIN
    CREATE TEMPORARY STREAM quoted_newyork AS
    SELECT t.time AS time, t.symbol AS symbol, t.price AS price, t.size AS size,
        n.bid AS newyork_bid, n.ask AS newyork_ask
    FROM trades AS t ASOF LEFT JOIN newyork AS n ON n.symbol = t.symbol;

    CREATE STREAM quoted AS
    SELECT t.time AS time, t.symbol AS symbol, t.price AS price, t.size AS size,
        t.newyork_bid AS newyork_bid, t.newyork_ask AS newyork_ask,
        c.bid AS chicago_bid, c.ask AS chicago_ask
    FROM quoted_newyork AS t ASOF LEFT JOIN chicago AS c ON c.symbol = t.symbol;

    CREATE STREAM best AS
    SELECT time, symbol, price, size, greatest(newyork_bid, chicago_bid) AS bid,
        least(newyork_ask, chicago_ask) AS ask
    FROM quoted;

    CREATE TEMPORARY STREAM books AS
    SELECT n.time AS time, n.symbol AS symbol, n.bid AS newyork_bid, n.ask AS newyork_ask,
        c.bid AS chicago_bid, c.ask AS chicago_ask
    FROM newyork AS n ASOF JOIN chicago AS c ON c.symbol = n.symbol
    UNION ALL
    SELECT c.time AS time, c.symbol AS symbol, n.bid AS newyork_bid, n.ask AS newyork_ask,
        c.bid AS chicago_bid, c.ask AS chicago_ask
    FROM chicago AS c ASOF JOIN newyork AS n ON n.symbol = c.symbol;

    CREATE STREAM crossed AS
    SELECT time, symbol,
        CASE WHEN newyork_bid > chicago_ask THEN 'newyork' ELSE 'chicago' END AS buys,
        greatest(newyork_bid, chicago_bid) AS bid, least(newyork_ask, chicago_ask) AS ask
    FROM books WHERE newyork_bid > chicago_ask OR chicago_bid > newyork_ask;
END;
