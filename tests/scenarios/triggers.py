"""Triggers and stored functions on two SQL nodes: no row is written without a trigger that there is, counts that triggers keep are right when data nodes have died, statements are undone with them, and dumps bring them along."""

import threading

import pymysql

from lib.asking import ask, connect, refused
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, run, scenario_main, wait_until
from lib.mariadb import dump, load

LIMIT_SECONDS = (120, 300)
SIDE_BY_SIDE = True
ROUNDS = 100 if FULL else 15
SUBNETS = 4
# The outcome of a commit, where the one that could tell joined a moment ago.
UNKNOWN = 1180

# What Kea does with its leases: a trigger for each change keeps a count by subnet and state.
SCHEMA = """
CREATE DATABASE dhcp; USE dhcp;
CREATE TABLE lease (address INT PRIMARY KEY, subnet INT NOT NULL, state INT NOT NULL, name VARCHAR(20));
CREATE TABLE stat (subnet INT, state INT, leases BIGINT NOT NULL, PRIMARY KEY (subnet, state));
CREATE TABLE journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(60));
DELIMITER $$
CREATE PROCEDURE counted(of_subnet INT, of_state INT, more INT)
BEGIN
  UPDATE stat SET leases = leases + more WHERE subnet = of_subnet AND state = of_state;
  IF ROW_COUNT() <= 0 THEN
    INSERT INTO stat VALUES (of_subnet, of_state, more);
  END IF;
END$$
CREATE FUNCTION shown(address INT) RETURNS VARCHAR(20) DETERMINISTIC
  RETURN CONCAT_WS('.', address >> 24, (address >> 16) & 255, (address >> 8) & 255, address & 255)$$
CREATE FUNCTION in_use(of_subnet INT) RETURNS BIGINT READS SQL DATA
  RETURN (SELECT COALESCE(SUM(leases), 0) FROM stat WHERE subnet = of_subnet AND state = 0)$$
CREATE TRIGGER lease_bi BEFORE INSERT ON lease FOR EACH ROW
BEGIN
  IF NEW.state NOT IN (0, 1) THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a lease is free or taken';
  END IF;
  SET NEW.name = COALESCE(NEW.name, shown(NEW.address));
END$$
CREATE TRIGGER lease_ai AFTER INSERT ON lease FOR EACH ROW CALL counted(NEW.subnet, NEW.state, 1)$$
CREATE TRIGGER lease_au AFTER UPDATE ON lease FOR EACH ROW
BEGIN
  IF OLD.state <> NEW.state THEN
    CALL counted(OLD.subnet, OLD.state, -1);
    CALL counted(NEW.subnet, NEW.state, 1);
  END IF;
END$$
CREATE TRIGGER lease_ad AFTER DELETE ON lease FOR EACH ROW
BEGIN
  CALL counted(OLD.subnet, OLD.state, -1);
  INSERT INTO journal (what) VALUES (CONCAT('it''s gone: ', OLD.name));
END$$
DELIMITER ;
"""


def counts_agree(connection, database="dhcp"):
    counted = ask(connection, f"SELECT subnet, state, COUNT(*) FROM {database}.lease GROUP BY subnet, state ORDER BY 1, 2")
    kept = ask(connection, f"SELECT subnet, state, leases FROM {database}.stat WHERE leases <> 0 ORDER BY 1, 2")
    check_equal(kept, counted, "what triggers have counted, and what there is")


def two_nodes(t, first, second):
    with t.case("a trigger made through one SQL node runs for the next row of the other, and no more when it was dropped"):
        ask(first, "CREATE TABLE dhcp.t (id INT PRIMARY KEY, a INT)")
        ask(second, "INSERT INTO dhcp.t VALUES (0, 0)")
        for n in range(1, ROUNDS + 1):
            ask(first, f"CREATE TRIGGER dhcp.tr BEFORE INSERT ON dhcp.t FOR EACH ROW SET NEW.a = {n}")
            ask(second, f"INSERT INTO dhcp.t VALUES ({n}, 0)")
            ask(first, "DROP TRIGGER dhcp.tr")
            ask(second, f"INSERT INTO dhcp.t VALUES ({-n}, 0)")
        wrong = ask(first, "SELECT id, a FROM dhcp.t WHERE a <> GREATEST(id, 0)")
        check_equal(wrong, (), "rows that a trigger has, or has not, seen")
        ask(first, "DROP TABLE dhcp.t")


def statements(t, first):
    with t.case("a statement that a trigger refuses in its last row leaves nothing, of itself and of triggers"):
        refused(first, "INSERT INTO dhcp.lease (address, subnet, state) VALUES (1, 1, 0), (2, 1, 1), (3, 1, 2)", 1644)
        check_equal(ask(first, "SELECT (SELECT COUNT(*) FROM dhcp.lease) + (SELECT COUNT(*) FROM dhcp.stat)"), ((0,),), "rows")
    with t.case("INSERT, UPDATE, DELETE, REPLACE and ON DUPLICATE KEY UPDATE of many rows are counted"):
        values = ", ".join(f"({n}, {n % SUBNETS}, {n % 2})" for n in range(1, 301))
        ask(first, f"INSERT INTO dhcp.lease (address, subnet, state) VALUES {values}")
        counts_agree(first)
        ask(first, "UPDATE dhcp.lease SET state = 1 - state WHERE address % 3 = 0")
        ask(first, "REPLACE INTO dhcp.lease (address, subnet, state) SELECT address, subnet, 1 FROM dhcp.lease WHERE address < 50")
        ask(first, "INSERT INTO dhcp.lease (address, subnet, state) VALUES (5, 1, 0), (1000, 1, 0) ON DUPLICATE KEY UPDATE state = VALUES(state)")
        ask(first, "DELETE FROM dhcp.lease WHERE address BETWEEN 100 AND 150")
        counts_agree(first)
        check_equal(ask(first, "SELECT COUNT(*) FROM dhcp.journal"), ((100,),), "rows that went, of them 49 replaced")
    with t.case("a transaction is rolled back with all that its triggers did"):
        before = ask(first, "SELECT SUM(leases) FROM dhcp.stat")
        ask(first, "BEGIN")
        ask(first, "DELETE FROM dhcp.lease WHERE address < 100")
        ask(first, "ROLLBACK")
        check_equal(ask(first, "SELECT SUM(leases) FROM dhcp.stat"), before, "leases")
        counts_agree(first)
    with t.case("functions in every clause say what their queries say"):
        by_function = ask(first, "SELECT subnet, in_use(subnet) FROM dhcp.lease GROUP BY subnet HAVING in_use(subnet) > 0 ORDER BY in_use(subnet), subnet".replace("in_use", "dhcp.in_use"))
        by_query = ask(first, "SELECT subnet, SUM(state = 0) n FROM dhcp.lease GROUP BY subnet HAVING n > 0 ORDER BY n, subnet")
        check_equal(by_function, by_query, "leases in use")
        check_equal(ask(first, "SELECT name FROM dhcp.lease WHERE name = dhcp.shown(address) AND address = 300"), (("0.0.1.44",),), "a name")


class Server(threading.Thread):
    """Takes, gives back and forgets leases, each by a statement alone."""

    def __init__(self, connection, which):
        super().__init__(daemon=True)
        self.connection, self.which = connection, which
        self.stopping, self.done, self.unknown, self.wrong = threading.Event(), 0, 0, None

    def run(self):
        try:
            n = 0
            while not self.stopping.is_set():
                n += 1
                address = 1_000_000 * (self.which + 1) + n // 3
                one = (
                    f"INSERT INTO dhcp.lease (address, subnet, state) VALUES ({address}, {n % SUBNETS}, 0)",
                    f"UPDATE dhcp.lease SET state = 1 WHERE address = {address - 1}",
                    f"DELETE FROM dhcp.lease WHERE address = {address - 5}",
                )[n % 3]
                try:
                    ask(self.connection, one)
                    self.done += 1
                except pymysql.MySQLError as error:
                    # Two servers count in one row of `stat`: a deadlock is theirs to run again.
                    if error.args[0] not in (UNKNOWN, 1213, 1205):
                        raise
                    self.unknown += error.args[0] == UNKNOWN
        except Exception as error:  # noqa: BLE001 - told by whoever joins
            self.wrong = error

    def goes_on(self):
        done = self.done
        wait_until(lambda: self.wrong or self.done > done, 20, f"server {self.which} goes on")
        check(self.wrong is None, f"server {self.which}: {self.wrong!r}")


def under_fire(t, cluster, first):
    servers = [Server(connect(cluster, which), which) for which in (0, 1)]
    with t.case("statements alone go on while data nodes are killed and come back, and every count is right"):
        for server in servers:
            server.start()
        for node in (1, 2):
            for step in (lambda: cluster.kill(node), lambda: (cluster.wait_down(node), cluster.restart(node), cluster.wait_up(node)), lambda: None):
                for server in servers:
                    server.goes_on()
                step()
        for server in servers:
            server.goes_on()
            server.stopping.set()
            server.join(30)
            check(not server.is_alive() and server.wrong is None, f"server {server.which}: {server.wrong!r}")
        counts_agree(first)
        t.say(f"{sum(server.done for server in servers)} statements with triggers")


def dumped(t, cluster, first):
    with t.case("a dump with triggers, procedures and functions is loaded again"):
        text = dump(cluster, "dhcp", "--routines", "--triggers")
        ask(first, "CREATE DATABASE copy")
        load(cluster, text, database="copy")
        of = "SELECT trigger_name, action_order, action_timing, event_manipulation, action_statement FROM information_schema.triggers WHERE trigger_schema = '{}' ORDER BY 1"
        check_equal(ask(first, of.format("copy")), ask(first, of.format("dhcp")), "triggers")
        routines = "SELECT routine_type, routine_name, dtd_identifier, routine_definition FROM information_schema.routines WHERE routine_schema = '{}' ORDER BY 1, 2"
        check_equal(ask(first, routines.format("copy")), ask(first, routines.format("dhcp")), "routines")
        counts_agree(first, "copy")
        ask(first, "DELETE FROM copy.lease WHERE address < 60")
        counts_agree(first, "copy")
        ask(first, "DROP DATABASE copy")


def main(t):
    with Cluster(t, sql_nodes=2) as cluster:
        load(cluster, SCHEMA)
        first, second = connect(cluster, 0), connect(cluster, 1)
        two_nodes(t, first, second)
        statements(t, first)
        under_fire(t, cluster, first)
        dumped(t, cluster, first)


if __name__ == "__main__":
    scenario_main(main)
