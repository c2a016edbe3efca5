-- cert.example: the addresses that are known as hostile, and since when. The laboratories may read
-- the list, and tell others what came of it.
CREATE TABLE threats (
  address STRING(64),
  kind STRING(32) NOT NULL,
  since TIMESTAMP,
  PRIMARY KEY (address),
  WATERMARK FOR since AS since
) WITH (
  history = INTERVAL '1' DAY,
  max_ahead = none,
  readers = 'lab-a.example lab-b.example',
  declassify = 'lab-a.example lab-b.example'
);
