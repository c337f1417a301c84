-- A store as version 1 wrote it: two jobs, one of them with a snapshot, and a third that was removed.
CREATE TABLE store (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  largest_job INTEGER NOT NULL,
  checks INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, 0, 0);
CREATE TABLE jobs (
  job INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL,
  last_sequence INTEGER NOT NULL
) STRICT;
CREATE TABLE snapshots (
  job INTEGER PRIMARY KEY,
  sequence INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  bytes BLOB NOT NULL
) STRICT;
CREATE TABLE events (
  job INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE batches (
  job INTEGER NOT NULL,
  iteration INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, iteration)
) STRICT, WITHOUT ROWID;
UPDATE store SET largest_job = 3;
INSERT INTO jobs VALUES (1, 'job-1', 3), (2, 'job-2', 4);
INSERT INTO events VALUES (1, 1, 4049901727, x'312f31');
INSERT INTO events VALUES (1, 2, 802010101, x'312f32');
INSERT INTO events VALUES (1, 3, 1705683667, x'312f33');
INSERT INTO events VALUES (2, 3, 1443106327, x'322f33');
INSERT INTO events VALUES (2, 4, 2051032996, x'322f34');
INSERT INTO snapshots VALUES (2, 2, 3889236856, x'61742032');
INSERT INTO batches VALUES (2, 5, 2093768708, x'62617463682035');
PRAGMA application_id = 1886286708;
PRAGMA user_version = 1;
