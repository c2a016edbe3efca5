-- lab-a.example: its connections. Nobody else may read them. Its own queries may give others what
-- they make of them: lab.sql says what.
CREATE STREAM conns (
  ts TIMESTAMP,
  src_ip STRING(64) NOT NULL,
  dst_ip STRING(64) NOT NULL,
  dst_port INT,
  bytes_out LONG,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  history = INTERVAL '1' DAY,
  max_ahead = none,
  readers = '',
  declassify = 'lab-a.example'
);
