CREATE FUNCTION site(address STRING) RETURNS STRING DETERMINISTIC
  LANGUAGE PYTHON AS 'sites.py:site';

CREATE STREAM per_site AS
SELECT window_start, site(src_ip) AS city, count(*) AS conns
FROM TUMBLE(TABLE conns, DESCRIPTOR(stime), INTERVAL '1' HOUR)
GROUP BY window_start, site(src_ip);
