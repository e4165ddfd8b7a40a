"""Events on several SQL nodes: each run is begun once, whoever dies; what was missed is made up for once; dumps bring them along; KILL and event_scheduler stop them."""

import time

from lib.asking import ask, connect, refused
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, end, scenario_main, wait_until
from lib.mariadb import dump, load

LIMIT_SECONDS = (150, 300)
SIDE_BY_SIDE = True
# Seconds after which another SQL node has the lease of one that was killed (crates/sql/src/session/user_lock/lease.rs, DEAD), and some.
TAKE_OVER = 11 + 9
# Seconds after which another SQL node has the lease of one that has ended, less than it takes to find out that one is dead.
GIVEN_OVER = 8
TIMES = 60 if FULL else 20

SCHEMA = """
CREATE DATABASE clock; USE clock;
CREATE TABLE ticks (id BIGINT AUTO_INCREMENT PRIMARY KEY, at DATETIME(6) NOT NULL, connection BIGINT, who VARCHAR(80));
CREATE TABLE once (id INT NOT NULL, at DATETIME(6) NOT NULL, n BIGINT AUTO_INCREMENT PRIMARY KEY);
CREATE TABLE source (id INT PRIMARY KEY, v INT NOT NULL);
CREATE TABLE sums (id INT PRIMARY KEY, total BIGINT NOT NULL);
INSERT INTO sums VALUES (1, 0);
DELIMITER $$
CREATE PROCEDURE folded() BEGIN
  DECLARE this, last BIGINT;
  START TRANSACTION;
  -- What is inserted meanwhile has a higher number: FOR UPDATE locks rows that are there.
  SELECT COALESCE(SUM(v), 0), COALESCE(MAX(id), 0) INTO this, last FROM source FOR UPDATE;
  DELETE FROM source WHERE id <= last;
  UPDATE sums SET total = total + this WHERE id = 1;
  COMMIT;
END$$
DELIMITER ;
"""


def made(connection, name, schedule, body, rest=""):
    ask(connection, f"CREATE EVENT clock.{name} ON SCHEDULE {schedule} {rest} DO {body}")


def one(connection, query):
    return ask(connection, query)[0][0]


def runs(t, first, second):
    with t.case("a recurring event made through one SQL node runs once a second, as its definer, in its own database"):
        made(first, "tick", "EVERY 1 SECOND", "INSERT INTO ticks (at, connection, who) VALUES (NOW(6), CONNECTION_ID(), CONCAT(CURRENT_USER(), ' ', DATABASE()))")
        wait_until(lambda: one(second, "SELECT COUNT(*) FROM clock.ticks") >= 4, 20, "it runs")
        check_equal(ask(first, "SELECT DISTINCT who FROM clock.ticks"), (("root@% clock",),), "who and where")
        seconds = one(first, "SELECT TIMESTAMPDIFF(SECOND, MIN(at), MAX(at)) + 2 FROM clock.ticks")
        ticks = one(first, "SELECT COUNT(*) FROM clock.ticks")
        check(ticks <= seconds, f"{ticks} runs in {seconds} s")
        check(one(second, "SELECT last_executed IS NOT NULL FROM information_schema.events WHERE event_name = 'tick'"), "when it ran last")
        ask(second, "DROP EVENT clock.tick")
    with t.case("what runs once is gone afterwards, or disabled"):
        made(first, "gone", "AT CURRENT_TIMESTAMP", "INSERT INTO once (id, at) VALUES (1, NOW(6))")
        made(second, "kept", "AT CURRENT_TIMESTAMP + INTERVAL 1 SECOND", "INSERT INTO once (id, at) VALUES (2, NOW(6))", "ON COMPLETION PRESERVE")
        left = "SELECT event_name, status, last_executed IS NOT NULL FROM information_schema.events WHERE event_schema = 'clock'"
        wait_until(lambda: ask(first, left) == (("kept", "DISABLED", 1),), 20, "one is gone, one is disabled")
        check_equal(ask(first, "SELECT id, COUNT(*) FROM clock.once GROUP BY id ORDER BY id"), ((1, 1), (2, 1)), "runs")
        ask(first, "DROP EVENT clock.kept")
        ask(first, "DELETE FROM clock.once")
    with t.case("an event whose body fails goes on; its rows are read by nobody"):
        ask(first, "DELETE FROM clock.ticks")
        made(first, "fails", "EVERY 1 SECOND", "BEGIN INSERT INTO ticks (at) VALUES (NOW(6)); SELECT * FROM ticks; SELECT * FROM nosuch; INSERT INTO ticks (at) VALUES (NULL); END")
        wait_until(lambda: one(first, "SELECT COUNT(*) FROM clock.ticks") >= 2, 20, "it runs again")
        ask(first, "DROP EVENT clock.fails")


def claimed(t, first):
    with t.case("a run that another SQL node has claimed is not begun; the ones behind it are"):
        ask(first, "DELETE FROM clock.ticks")
        made(first, "tick", "EVERY 1 SECOND", "INSERT INTO ticks (at) VALUES (NOW(6))")
        wait_until(lambda: one(first, "SELECT COUNT(*) FROM clock.ticks") >= 1, 20, "it runs")
        # What another one would have written if it had run the next four.
        ask(first, "UPDATE apus.event_runs SET last = last + 4000000")
        ticks = one(first, "SELECT COUNT(*) FROM clock.ticks")
        wait_until(lambda: one(first, "SELECT COUNT(*) FROM clock.ticks") >= ticks + 2, 20, "it goes on")
        times = [row[0] for row in ask(first, "SELECT at FROM clock.ticks ORDER BY at")]
        gap = max((later - earlier).total_seconds() for earlier, later in zip(times, times[1:]))
        check(gap >= 3, f"it stood still for {gap} s, not for the four runs")
        ask(first, "DROP EVENT clock.tick")


def stopped(t, cluster, first, second):
    with t.case("a run is in the list of processes, and KILL ends it"):
        made(first, "long", "AT CURRENT_TIMESTAMP", "BEGIN DO SLEEP(100); INSERT INTO once (id, at) VALUES (9, NOW(6)); END")
        found = "SELECT id FROM information_schema.processlist WHERE db = 'clock' AND info LIKE '%SLEEP(100)%' AND id <> CONNECTION_ID()"
        seen = []

        def is_running():
            for connection in (first, second):
                seen.extend((connection, row[0]) for row in ask(connection, found))
            return seen

        wait_until(is_running, 20, "it runs")
        where, number = seen[0]
        ask(where, f"KILL {number}")
        wait_until(lambda: not ask(where, found) and not ask(first, "SELECT 1 FROM information_schema.events WHERE event_name = 'long'"), 20, "it is ended, and gone")
        check_equal(ask(first, "SELECT * FROM clock.once"), (), "what was behind it")
    with t.case("with event_scheduler OFF at all SQL nodes nothing runs; what was missed is made up for once"):
        for connection in (first, second):
            ask(connection, "SET GLOBAL event_scheduler = OFF")
        ask(first, "DELETE FROM clock.ticks")
        made(first, "missed", "EVERY 1 SECOND", "INSERT INTO ticks (at) VALUES (NOW(6))")
        ask(first, "DO SLEEP(3)")
        check_equal(one(first, "SELECT COUNT(*) FROM clock.ticks"), 0, "runs")
        ask(second, "SET GLOBAL event_scheduler = ON")
        wait_until(lambda: one(first, "SELECT COUNT(*) FROM clock.ticks") >= 2, 20, "it runs")
        spread = one(first, "SELECT TIMESTAMPDIFF(SECOND, MIN(at), MAX(at)) + 2 - COUNT(*) FROM clock.ticks")
        check(spread >= 0, "all that was missed was run")
        ask(first, "SET GLOBAL event_scheduler = ON")
        ask(first, "DROP EVENT clock.missed")


def under_fire(t, cluster, first):
    with t.case("an event that changes several tables goes on while data nodes are killed, and loses and doubles nothing"):
        made(first, "fold", "EVERY 1 SECOND", "CALL folded()")
        expected, n = 0, 0
        for node in (1, 2):
            for step in (lambda: cluster.kill(node), lambda: (cluster.wait_down(node), cluster.restart(node), cluster.wait_up(node)), lambda: None):
                ran = one(first, "SELECT COALESCE(MAX(last_executed), '') FROM information_schema.events WHERE event_name = 'fold'")
                for _ in range(10):
                    n += 1
                    ask(first, f"INSERT INTO clock.source VALUES ({n}, {n})")
                    expected += n
                step()
                wait_until(lambda: one(first, "SELECT COALESCE(MAX(last_executed), '') FROM information_schema.events WHERE event_name = 'fold'") > ran, 30, "it runs again")
        wait_until(lambda: one(first, "SELECT COUNT(*) FROM clock.source") == 0, 30, "all is folded")
        check_equal(one(first, "SELECT total FROM clock.sums"), expected, "the sum")
        ask(first, "DROP EVENT clock.fold")


def sql_node_dies(t, cluster, first, second):
    with t.case("the SQL node that runs events is killed: another goes on, and no run is begun twice"):
        for connection in (first, second):
            ask(connection, "SET GLOBAL event_scheduler = OFF")
        ask(first, "DELETE FROM clock.once")
        ask(first, "DELETE FROM clock.ticks")
        # The one has the lease before the other is there.
        process, _ = cluster.more_sql("runs")
        made(first, "tick", "EVERY 1 SECOND", "INSERT INTO ticks (at) VALUES (NOW(6))")
        wait_until(lambda: one(first, "SELECT COUNT(*) FROM clock.ticks") >= 1, 20, "it runs")
        waits, _ = cluster.more_sql("waits")
        for n in range(TIMES):
            made(first, f"once{n}", f"AT CURRENT_TIMESTAMP + INTERVAL {1 + n // 4} SECOND", f"INSERT INTO once (id, at) VALUES ({n}, NOW(6))")
        ask(first, "DO SLEEP(2.5)")
        process.kill()
        begin = time.monotonic()
        ticks = one(first, "SELECT MAX(id) FROM clock.ticks")
        wait_until(lambda: one(first, "SELECT MAX(id) FROM clock.ticks") > ticks, TAKE_OVER, "another SQL node runs events")
        t.say(f"another SQL node runs events {time.monotonic() - begin:.1f} s after the kill")
        wait_until(lambda: one(first, "SELECT COUNT(*) FROM information_schema.events WHERE event_name LIKE 'once%'") == 0, 30, "all have run")
        check_equal(ask(first, "SELECT id, COUNT(*) FROM clock.once GROUP BY id HAVING COUNT(*) > 1"), (), "runs that were begun twice")
        # A run that was under way when its SQL node died is not begun again.
        ran = one(first, "SELECT COUNT(*) FROM clock.once")
        check(TIMES - 4 <= ran <= TIMES, f"{ran} of {TIMES} runs")
    with t.case("the SQL node that runs events is told to end: another goes on at once"):
        cluster.more_sql("follows")
        check_equal(end(waits), 0, "how it ended")
        begin = time.monotonic()
        ticks = one(first, "SELECT MAX(id) FROM clock.ticks")
        wait_until(lambda: one(first, "SELECT MAX(id) FROM clock.ticks") > ticks, GIVEN_OVER, "another SQL node runs events")
        t.say(f"another SQL node runs events {time.monotonic() - begin:.1f} s after the end")
        ask(first, "DROP EVENT clock.tick")
        for connection in (first, second):
            ask(connection, "SET GLOBAL event_scheduler = ON")


def dumped(t, cluster, first):
    with t.case("a dump with events is loaded again"):
        made(first, "nightly", "EVERY '1:30' HOUR_MINUTE STARTS '2035-01-01 00:00:00' ENDS '2036-01-01 00:00:00'", "BEGIN DECLARE a INT; SET a = 1; CALL folded(); END", "ON COMPLETION PRESERVE COMMENT 'it''s late'")
        made(first, "later", "AT '2035-06-01 12:00:00'", "CALL folded()", "DISABLE")
        text = dump(cluster, "clock", "--events", "--routines")
        ask(first, "CREATE DATABASE copy")
        load(cluster, text, database="copy")
        of = "SELECT event_name, event_type, execute_at, interval_value, interval_field, starts, ends, status, on_completion, event_comment, event_definition, time_zone FROM information_schema.events WHERE event_schema = '{}' ORDER BY 1"
        check_equal(ask(first, of.format("copy")), ask(first, of.format("clock")), "events")
        check_equal(len(ask(first, of.format("copy"))), 2, "events")
        ask(first, "DROP DATABASE copy")
        check_equal(ask(first, of.format("copy")), (), "events of a database that is gone")


def main(t):
    with Cluster(t, sql_nodes=2) as cluster:
        load(cluster, SCHEMA)
        first, second = connect(cluster, 0), connect(cluster, 1)
        runs(t, first, second)
        claimed(t, first)
        stopped(t, cluster, first, second)
        under_fire(t, cluster, first)
        sql_node_dies(t, cluster, first, second)
        dumped(t, cluster, first)
        with t.case("a definer without the privilege EVENT, or who is gone, runs nothing"):
            ask(first, "CREATE USER clerk@'%' IDENTIFIED BY 'x'")
            ask(first, "GRANT ALL ON clock.* TO clerk@'%'")
            ask(first, "DELETE FROM clock.ticks")
            ask(first, "CREATE DEFINER = clerk@'%' EVENT clock.tick ON SCHEDULE EVERY 1 SECOND DO INSERT INTO ticks (at, who) VALUES (NOW(6), CURRENT_USER())")
            wait_until(lambda: one(first, "SELECT COUNT(*) FROM clock.ticks WHERE who = 'clerk@%'") >= 1, 20, "it runs as its definer")
            for less in ("REVOKE EVENT ON clock.* FROM clerk@'%'", "DROP USER clerk@'%'"):
                ask(first, less)
                ask(first, "DO SLEEP(2)")
                count = one(first, "SELECT COUNT(*) FROM clock.ticks")
                ask(first, "DO SLEEP(2)")
                check_equal(one(first, "SELECT COUNT(*) FROM clock.ticks"), count, f"runs after {less}")
            ask(first, "DROP EVENT clock.tick")
            refused(first, "SHOW CREATE EVENT clock.tick", 1539)


if __name__ == "__main__":
    scenario_main(main)
