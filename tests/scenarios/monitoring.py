"""Prometheus' exporter for MySQL, as Debian ships it, with all collectors that do not ask for replicas or plugins: each is answered, also while a data node is gone."""

import contextlib
import re
import urllib.request

import pymysql

from lib import apps
from lib.cluster import Cluster
from lib.harness import check, check_equal, end, scenario_main, spawn, wait_until

LIMIT_SECONDS = (60, 60)
SIDE_BY_SIDE = True
COLLECTORS = """auto_increment.columns engine_innodb_status global_status global_variables info_schema.innodb_cmp info_schema.innodb_cmpmem info_schema.innodb_metrics info_schema.processlist
    info_schema.query_response_time info_schema.schemastats info_schema.tables mysql.user perf_schema.eventsstatements perf_schema.eventsstatementssum perf_schema.eventswaits
    perf_schema.file_events perf_schema.file_instances perf_schema.indexiowaits perf_schema.memory_events perf_schema.tableiowaits perf_schema.tablelocks""".split()


class Exporter:
    def __init__(self, t, cluster):
        self.folder = apps.unpacked("exporter", "prometheus-mysqld-exporter")
        self.port, self.log = apps.free_port(), t.directory / "exporter.log"
        host, port = cluster.sql
        self.environment = {**apps.environment(self.folder), "DATA_SOURCE_NAME": f"root@({host}:{port})/"}

    def __enter__(self):
        command = [self.folder / "usr/bin/prometheus-mysqld-exporter", f"--web.listen-address=127.0.0.1:{self.port}", *[f"--collect.{name}" for name in COLLECTORS]]
        with open(self.log, "wb") as out:
            self.process = spawn(command, stdout=out, stderr=out, env=self.environment)
        try:
            wait_until(lambda: "listen" in self.said().lower(), 20, "the exporter listens")
        except BaseException:
            end(self.process)
            raise
        return self

    def __exit__(self, *_):
        end(self.process)

    def said(self):
        return self.log.read_text(errors="replace")

    def metrics(self):
        """{a metric with its labels: its value}, as Prometheus is told."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def check_collectors(exporter, found):
    errors = [line for line in exporter.said().splitlines() if "level=error" in line]
    check_equal(errors, [], "what the exporter complained of")
    done = {re.search(r'"(?:collect\.)?(.*)"', name)[1] for name in found if name.startswith("mysql_exporter_collector_duration_seconds")}
    check(done >= set(COLLECTORS), f"collectors that did not run: {set(COLLECTORS) - done}")
    check_equal(found["mysql_up"], 1, "mysql_up")


def main(t):
    with Cluster(t) as cluster:
        host, port = cluster.sql
        with contextlib.closing(pymysql.connect(host=host, port=port, user="root", autocommit=True)) as connection, connection.cursor() as cursor:

            def ask(statement):
                cursor.execute(statement)
                return cursor.fetchall()

            ask("CREATE DATABASE shop")
            ask("USE shop")
            ask("CREATE TABLE item (id TINYINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20))")
            ask("INSERT INTO item (name) VALUES ('swift'), ('nest')")
            with Exporter(t, cluster) as exporter:
                with t.case("Prometheus' exporter asks all it wants, and is answered"):
                    found = exporter.metrics()
                    check_collectors(exporter, found)
                    check_equal(found['mysql_info_schema_auto_increment_column_max{column="id",schema="shop",table="item"}'], 127, "the largest number of a TINYINT")
                    check_equal(found["mysql_global_variables_performance_schema"], 1, "performance_schema")
                    check(found['mysql_global_status_commands_total{command="insert"}'] == 1 and found["mysql_global_status_threads_connected"] >= 2, "what is counted of statements and connections")
                    check(any(name.startswith("mysql_perf_schema_events_statements_total{") and 'schema="shop"' in name for name in found), "statements by their normal form")
                with t.case("and is answered while a data node is gone"):
                    cluster.kill(1)
                    check_collectors(exporter, exporter.metrics())
                    cluster.wait_down(1)
                    check_collectors(exporter, exporter.metrics())
            with t.case("tables of what nobody counts are there and empty"):
                check_equal(ask("SELECT @@performance_schema"), ((1,),), "performance_schema")
                for name in ("events_stages_current", "data_locks", "setup_objects", "memory_summary_global_by_event_name", "replication_connection_status"):
                    check_equal(ask(f"SELECT COUNT(*) FROM performance_schema.{name}"), ((0,),), name)
                shown, listed = dict(ask("SHOW GLOBAL STATUS")), dict(ask("SELECT * FROM performance_schema.global_status"))
                check_equal(sorted(shown), sorted(listed), "global_status")
                check_equal([column[0] for column in ask("DESCRIBE performance_schema.events_statements_history")][:4], ["THREAD_ID", "EVENT_ID", "END_EVENT_ID", "EVENT_NAME"], "columns")
            with t.case("threads, statements of sessions and the schema sys"):
                ask("SELECT 'marked', 1")
                one = "SELECT SQL_TEXT, ROWS_SENT, CURRENT_SCHEMA, EVENT_NAME, ERRORS FROM performance_schema.events_statements_history WHERE SQL_TEXT LIKE 'SELECT ''marked%'"
                check_equal(ask(one), (("SELECT 'marked', 1", 1, "shop", "statement/sql/select", 0),), "its history")
                running = "SELECT e.SQL_TEXT LIKE 'SELECT e.%', e.END_EVENT_ID FROM performance_schema.events_statements_current e JOIN performance_schema.threads t USING (THREAD_ID) WHERE t.PROCESSLIST_ID = CONNECTION_ID()"
                check_equal(ask(running), ((1, None),), "the statement that runs")
                check_equal(ask("SELECT COUNT(*) FROM performance_schema.events_statements_history WHERE THREAD_ID = CONNECTION_ID()"), ((10,),), "as many as are kept")
                check_equal(ask("SELECT conn_id = CONNECTION_ID(), command FROM sys.processlist WHERE current_statement LIKE '%conn_id%'"), ((1, "Query"),), "sys.processlist")
                check(ask("SELECT exec_count, query FROM sys.statement_analysis WHERE query LIKE 'SELECT%'"), "sys.statement_analysis")
                check_equal(ask("SELECT VARIABLE_VALUE > 0 FROM performance_schema.session_status WHERE VARIABLE_NAME = 'Com_select'"), ((1,),), "session_status")
            with t.case("TABLES and SHOW TABLE STATUS tell how large tables are"):
                ask("CREATE TABLE shop.part (id BIGINT PRIMARY KEY, name VARCHAR(100), KEY (name))")
                sizes = "TABLE_ROWS, AVG_ROW_LENGTH, DATA_LENGTH, MAX_DATA_LENGTH, INDEX_LENGTH, DATA_FREE, AUTO_INCREMENT"
                where = "FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'shop' ORDER BY TABLE_NAME"
                check_equal(ask(f"SELECT {sizes} {where}")[1], (0, 0, 0, 0, 0, 0, None), "an empty table")
                ask("INSERT INTO shop.part WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, REPEAT('x', 50) FROM n")
                item, part = ask(f"SELECT {sizes} {where}")
                check_equal((item[0], item[6]), (2, 3), "rows and the next number")
                check(part[0] == 1000 and 60 <= part[1] <= 90 and part[2] // 1000 == part[1] and part[4] >= 60_000 and part[6] is None, f"{part}")
                shown = ask("SHOW TABLE STATUS FROM shop")
                check_equal([row[4:11] for row in shown], [item, part], "SHOW TABLE STATUS")
            with t.case("SHOW ENGINE says where to look"):
                check("apus status" in ask("SHOW ENGINE INNODB STATUS")[0][2], "what it says")
                check_equal(ask("SHOW ENGINE INNODB MUTEX"), (), "SHOW ENGINE INNODB MUTEX")
                try:
                    ask("SHOW ENGINE nothere STATUS")
                except pymysql.err.MySQLError as error:
                    check_equal(error.args[0], 1286, "an engine that is not there")
                else:
                    check(False, "an engine that is not there was shown")


if __name__ == "__main__":
    scenario_main(main)
