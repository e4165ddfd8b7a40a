"""Kea, ISC's DHCP server, as Debian ships it, with leases, reservations and configuration in its database for MySQL: triggers that call procedures and functions keep
its statistics. Its own tool makes the schema and dumps and loads leases; its own load generator, perfdhcp, takes them while data nodes are killed.

All is on loopback, over UDP: perfdhcp speaks as a relay, and an option of its packets says which subnet is meant. It does not ask twice; a client that got no answer
does, so what is lost in the moment of a death is taken by a second run.
"""

import contextlib
import json
import os
import re
import socket
import subprocess

import pymysql

from lib import apps
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, end, run, scenario_main, spawn, tail, wait_until

LIMIT_SECONDS = (400, 800)
PACKAGES = ["kea-dhcp4-server", "kea-admin", "kea-common"]
DATABASE = "kea"
LEASES, PER_SECOND = 200, 50
SECONDS_UNDER_FIRE, CLIENTS_UNDER_FIRE = (60, 1000) if FULL else (16, 300)
# An exchange takes milliseconds; what waits for a data node's successor is late, not lost.
LATE_SECONDS = 10
# {what a packet names: (number, prefix, pool)}; those of 3 come and go quickly, and 4 is only in the database.
SUBNETS = {number: (f"10.{number}.0.0/16", f"10.{number}.1.0", f"10.{number}.250.0") for number in (1, 2, 3, 4)}
QUICK_SECONDS = 2
ROLLED_BACK = "rolled back"
# What its script makes.
TABLES, TRIGGERS, PROCEDURES, FUNCTIONS = 54, 55, 32, 4


def rows(cluster, statement, *values):
    host, port = cluster.sql
    with contextlib.closing(pymysql.connect(host=host, port=port, user="root", database=DATABASE, autocommit=True)) as connection, connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall()


def environment(folder, home):
    return {**apps.environment(folder), "KEA_PIDFILE_DIR": str(home), "KEA_LOCKFILE_DIR": str(home), "KEA_LOGGER_DESTINATION": str(home / "early.log")}


def admin(t, folder, cluster, *command):
    """What Kea's tool says. The script has the folder of its installation in it."""
    script = t.directory / "kea-admin"
    script.write_text((folder / "usr/sbin/kea-admin").read_text().replace('prefix="/usr"', f'prefix="{folder}/usr"'))
    host, port = cluster.sql
    verb, *more = command
    where = ["-u", "root", "-p", "", "-n", DATABASE, "-h", host, "-x", f"--port={port} --protocol=TCP"]
    return run(["sh", script, verb, "mysql", *where, *more], seconds=120, env=environment(folder, t.directory))[1]


class Server:
    """kea-dhcp4, its control socket, and a load generator that speaks to it."""

    def __init__(self, t, folder, cluster, name):
        self.folder, self.home = folder, t.directory / name
        self.home.mkdir()
        self.log, self.control = self.home / "kea.log", self.home / "control"
        self.ports = (apps.free_port(), apps.free_port())
        self.environment = environment(folder, self.home)
        (self.home / "kea.conf").write_text(json.dumps({"Dhcp4": self.configuration(cluster)}, indent=1))

    def configuration(self, cluster):
        host, port = cluster.sql
        database = {"type": "mysql", "name": DATABASE, "user": "root", "password": "", "host": host, "port": port}
        hooks = self.folder / "usr/lib/x86_64-linux-gnu/kea/hooks"
        subnets = [{"id": n, "subnet": prefix, "pools": [{"pool": f"{low} - {high}"}]} for n, (prefix, low, high) in SUBNETS.items() if n < 4]
        subnets[2] |= {"valid-lifetime": QUICK_SECONDS}
        return {
            "interfaces-config": {"interfaces": ["lo/127.0.0.1"], "dhcp-socket-type": "udp"},
            "lease-database": database, "hosts-databases": [database], "server-tag": "here",
            "config-control": {"config-databases": [database], "config-fetch-wait-time": 1},
            "hooks-libraries": [{"library": str(hooks / f"libdhcp_{name}.so")} for name in ("mysql_cb", "stat_cmds", "lease_cmds")],
            "control-socket": {"socket-type": "unix", "socket-name": str(self.control)},
            "multi-threading": {"enable-multi-threading": True, "thread-pool-size": 4, "packet-queue-size": 256},
            "expired-leases-processing": {"reclaim-timer-wait-time": 1, "hold-reclaimed-time": 1, "flush-reclaimed-timer-wait-time": 1},
            "valid-lifetime": 3600, "subnet4": subnets,
            "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": str(self.log)}]}],
        }  # fmt: skip

    def __enter__(self):
        listen, answer = self.ports
        with open(self.home / "out", "wb") as out:
            command = [self.folder / "usr/sbin/kea-dhcp4", "-c", self.home / "kea.conf", "-p", listen, "-P", answer]
            self.process = spawn(command, stdout=out, stderr=out, env=self.environment)
        try:
            wait_until(self._answers, 60, "Kea answers")
        except BaseException:
            end(self.process)
            raise
        return self

    def _answers(self):
        check(self.process.poll() is None, f"Kea ended:\n{(self.home / 'out').read_text()}{self.said()[-3000:]}")
        return "DHCP4_STARTED" in self.said() and self.tell("status-get")["result"] == 0

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def errors(self):
        return [line for line in self.said().splitlines() if " ERROR " in line or " FATAL " in line]

    def tell(self, command, **arguments):
        """The answer to a command, by the control socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.control))
            connection.sendall(json.dumps({"command": command, "arguments": arguments}).encode())
            return json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))

    def load(self, subnet, first, clients, *options):
        """The command of a load generator for so many clients, whose hardware addresses go up from `00:0c:FIRST:00:00`."""
        listen, answer = self.ports
        link = "0504" + socket.inet_aton(SUBNETS[subnet][1]).hex()
        where = ["-4", "-l", "127.0.0.1", "-L", answer, "-N", listen, "-o", f"82,{link}", "-b", f"mac=00:0c:{first}:00:00", "-R", clients, "-d", LATE_SECONDS, "-s", 1]
        return [self.folder / "usr/sbin/perfdhcp", *where, *options, "127.0.0.1"]

    def take(self, subnet, first, clients=PER_SECOND):
        """Each of so many clients, of at least a second's, takes a lease, and some take it again. Who got no answer asks again, more slowly: as clients of a busy server do."""
        for rate in (PER_SECOND, PER_SECOND // 2, PER_SECOND // 5, PER_SECOND // 10):
            # Told how many to make, perfdhcp may end before all are answered.
            seconds = clients // rate + 1
            wait = ["-r", rate, "-p", seconds, "-W", 1_000_000]
            _, report = run(self.load(subnet, first, clients, *wait), seconds=seconds + 60, env=self.environment, ok=False)
            found = exchanges(report)
            if found["DISCOVER-OFFER"][0] >= clients and not any(lost for _, lost in found.values()):
                return
        check(False, report)

    def __exit__(self, kind, value, trace):
        end(self.process)
        if kind is None:
            check_equal([line for line in self.errors() if ROLLED_BACK not in line], [], "errors that Kea has logged")


def exchanges(report):
    """{exchange: (sent, lost)} of perfdhcp's report."""
    parts = re.findall(r"\*\*\*Statistics for: (.*?)\*\*\*\s+sent packets: (\d+)\s+received packets: (\d+)", report)
    check(parts and "non unique addresses: 0" in report and "Malformed packets: 0" in report, report)
    return {name: (int(sent), int(sent) - int(received)) for name, sent, received in parts if "RELEASE" not in name}


def leases(cluster, subnet, state=0):
    """{hardware address: address} of a subnet."""
    found = rows(cluster, "SELECT HEX(hwaddr), INET_NTOA(address) FROM lease4 WHERE subnet_id = %s AND state = %s", subnet, state)
    check_equal(len(dict(found)), len(found), f"clients with one lease in subnet {subnet}")
    return dict(found)


def books(cluster):
    """The statistics that triggers keep, which have to be what is there; {subnet: leases}."""
    kept = rows(cluster, "SELECT subnet_id, state, leases FROM lease4_stat WHERE leases <> 0 ORDER BY 1, 2")
    there = rows(cluster, "SELECT subnet_id, state, COUNT(*) FROM lease4 WHERE state < 2 GROUP BY 1, 2 ORDER BY 1, 2")
    check_equal(kept, there, "statistics of leases")
    kept = rows(cluster, "SELECT client_class, leases FROM lease4_stat_by_client_class WHERE leases <> 0 ORDER BY 1")
    there = rows(
        cluster,
        """SELECT j.class, COUNT(*) FROM lease4 l JOIN JSON_TABLE(l.user_context, '$.ISC."client-classes"[*]' COLUMNS (class VARCHAR(128) PATH '$')) j
           WHERE l.user_context <> '' AND l.state = 0 GROUP BY 1 ORDER BY 1""",
    )
    check_equal(kept, there, "statistics of client classes")
    return {subnet: count for subnet, state, count in rows(cluster, "SELECT subnet_id, state, leases FROM lease4_stat") if state == 0}


def make_schema(t, folder, cluster):
    host, port = cluster.sql
    with contextlib.closing(pymysql.connect(host=host, port=port, user="root")) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
    said = admin(t, folder, cluster, "db-init")
    check("Database version reported after initialization: 14.0" in said and "ERROR" not in said, said)
    check_equal(admin(t, folder, cluster, "db-version").split()[-1], "14.0", "the version of the schema")
    found = rows(
        cluster,
        """SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'),
                  (SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE()),
                  (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_type = 'PROCEDURE'),
                  (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_type = 'FUNCTION')""",
    )
    check_equal(found[0], (TABLES, TRIGGERS, PROCEDURES, FUNCTIONS), "tables, triggers, procedures and functions")


def reservations(cluster, server):
    """A host has an address, a name and an option of its own in the database; before it asks, and while it has another address."""
    first, _, _ = SUBNETS[1]
    rows(cluster, "INSERT INTO hosts (dhcp_identifier, dhcp_identifier_type, dhcp4_subnet_id, ipv4_address, hostname) VALUES (UNHEX('000C10000000'), 0, 1, INET_ATON('10.1.251.9'), 'reserved.example')")
    rows(cluster, "INSERT INTO dhcp4_options (code, formatted_value, space, host_id, scope_id) SELECT 3, '10.1.0.1', 'dhcp4', host_id, 3 FROM hosts")
    server.take(1, "10:00")
    found = rows(cluster, "SELECT INET_NTOA(address), hostname FROM lease4 WHERE hwaddr = UNHEX('000C10000000')")
    check_equal(found, (("10.1.251.9", "reserved.example"),), "the lease of the host with a reservation")
    other = leases(cluster, 1)["000C10000001"]
    check(other.startswith("10.1.") and other != "10.1.251.9", f"the other host has {other}")
    books(cluster)


def come_and_go(t, cluster, server):
    """Renewals and releases, which nobody answers, among new leases; then leases that nobody renews."""
    options = ["-r", PER_SECOND, "-f", PER_SECOND * 2 // 5, "-F", PER_SECOND // 5, "-p", LEASES // PER_SECOND, "-W", 1_000_000]
    _, report = run(server.load(2, "20:00", LEASES, *options), seconds=60, env=server.environment, ok=False)
    found = exchanges(report)
    check_equal(sum(lost for _, lost in found.values()), 0, f"exchanges that were lost\n{report}\n{cluster.node_logs()}\n{tail(server.said(), 60)}")
    released, renewed = server.said().count("DHCP4_RELEASE "), found["REQUEST-ACK (renewal)"][0]
    check(released > 0 and renewed > 0, f"{released} releases, {renewed} renewals:\n{report}")
    kept = books(cluster)[2]
    check_equal(kept, found["REQUEST-ACK"][0] - released, "leases that were not released")
    t.say(f"{found['REQUEST-ACK'][0]} leases, {renewed} renewals, {released} releases")
    server.take(3, "30:00")
    wait_until(lambda: books(cluster).get(3) == 0, QUICK_SECONDS + 20, "leases expire")
    wait_until(lambda: not rows(cluster, "SELECT 1 FROM lease4 WHERE subnet_id = 3"), 20, "expired leases go")


def by_command(cluster, server):
    """Leases by the control socket; those with classes are counted in JSON by triggers."""
    context = {"ISC": {"client-classes": ["gold", "all"]}}
    for n in range(3):
        answer = server.tell("lease4-add", **{"ip-address": f"10.2.251.{n}", "hw-address": f"00:0c:40:00:00:0{n}", "subnet-id": 2, "user-context": context})
        check_equal(answer["result"], 0, answer["text"])
    check_equal(rows(cluster, "SELECT * FROM lease4_stat_by_client_class ORDER BY 1"), (("all", 3), ("gold", 3)), "leases by client class")
    context["ISC"]["client-classes"] = ["silver"]
    answer = server.tell("lease4-update", **{"ip-address": "10.2.251.1", "hw-address": "00:0c:40:00:00:01", "subnet-id": 2, "user-context": context})
    check_equal(answer["result"], 0, answer["text"])
    check_equal(server.tell("lease4-del", **{"ip-address": "10.2.251.2"})["result"], 0, "a lease is deleted")
    check_equal(rows(cluster, "SELECT * FROM lease4_stat_by_client_class ORDER BY 1"), (("all", 1), ("gold", 1), ("silver", 1)), "leases by client class")
    check_equal(server.tell("lease4-get", **{"ip-address": "10.2.251.1"})["arguments"]["user-context"], context, "what is known of a lease")
    table = server.tell("stat-lease4-get")["arguments"]["result-set"]
    told = {row[0]: dict(zip(table["columns"], row))["assigned-addresses"] for row in table["rows"]}
    check_equal({n: count for n, count in told.items() if count}, {n: count for n, count in books(cluster).items() if count}, "leases by subnet")
    check_equal(
        rows(cluster, """SELECT checkLease4Limits('{"ISC": {"limits": {"client-classes": [{"name": "gold", "address-limit": 1}]}}}'), checkLease4Limits('{}')""")[0],
        ("address limit 1 for client class \"gold\", current lease count 1", ""),
        "limits that a function checks",
    )


def from_database(cluster, server):
    """A subnet that an operator puts into the database is served a moment later, told by the audit that triggers write; one that goes is not."""
    prefix, low, high = SUBNETS[4]

    def change(*statements):
        host, port = cluster.sql
        with contextlib.closing(pymysql.connect(host=host, port=port, user="root", database=DATABASE)) as connection, connection.cursor() as cursor:
            cursor.execute("CALL createAuditRevisionDHCP4(NOW(), 'all', 'by an operator', 1)")
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def is_known():
        return any(subnet["id"] == 4 for subnet in server.tell("config-get")["arguments"]["Dhcp4"]["subnet4"])

    change(
        f"INSERT INTO dhcp4_subnet (subnet_id, subnet_prefix, modification_ts) VALUES (4, '{prefix}', NOW())",
        "INSERT INTO dhcp4_subnet_server VALUES (4, 1, NOW())",
        f"INSERT INTO dhcp4_pool (start_address, end_address, subnet_id, modification_ts) VALUES (INET_ATON('{low}'), INET_ATON('{high}'), 4, NOW())",
    )
    check_equal(rows(cluster, "SELECT object_type, object_id, modification_type FROM dhcp4_audit ORDER BY id"), (("dhcp4_subnet", 4, 0),), "the audit")
    wait_until(is_known, 20, "the subnet is known")
    server.take(4, "50:00")
    check_equal(books(cluster)[4], PER_SECOND, "leases of the subnet")
    change("DELETE FROM dhcp4_subnet WHERE subnet_id = 4")
    check_equal(rows(cluster, "SELECT COUNT(*) FROM dhcp4_pool WHERE subnet_id = 4")[0][0], 0, "pools of a subnet that is gone")
    wait_until(lambda: not is_known(), 20, "the subnet is gone")


def dump_and_upload(t, folder, cluster):
    """Leases go into a file and come back, by procedures; no server runs meanwhile."""
    file = t.directory / f"{t.directory.name}.csv"
    admin(t, folder, cluster, "lease-dump", "-4", "-o", file, "-y")
    lines = file.read_text().splitlines()
    columns = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context"
    check_equal(lines[0], columns, "the columns of a dump")
    # A file has no NULL.
    everything = "SELECT " + re.sub("client_id|user_context", lambda name: f"COALESCE({name[0]}, '')", columns) + " FROM lease4 ORDER BY address"
    there = rows(cluster, everything)
    check_equal(len(lines) - 1, len(there), "leases in the dump")
    line = next(line for line in lines if line.startswith("10.1.251.9,"))
    check(line.startswith("10.1.251.9,00:0c:10:00:00:00,01:00:0c:10:00:00:00,3600,") and ",reserved.example," in line, line)
    before = books(cluster)
    admin(t, folder, cluster, "stats-recount")
    check_equal({n: count for n, count in books(cluster).items() if count}, {n: count for n, count in before.items() if count}, "statistics that are counted anew")
    rows(cluster, "DELETE FROM lease4")
    check_equal(sum(books(cluster).values()), 0, "leases when all are deleted")
    said = admin(t, folder, cluster, "lease-upload", "-4", "-i", file, "-y")
    check("Successfully updated table lease4" in said, said)
    back = rows(cluster, everything)
    check_equal((len(back), [pair for pair in zip(there, back) if pair[0] != pair[1]][:3]), (len(there), []), "leases that came back, and how they differ")
    check_equal({n: count for n, count in books(cluster).items() if count}, {n: count for n, count in before.items() if count}, "statistics of leases that came back")


def under_fire(t, cluster, server):
    """Clients take, renew and release leases while each data node is killed and joins again."""
    # Told to stop it would not wait for what is under way, so it says itself when it ends.
    options = ["-r", PER_SECOND, "-f", PER_SECOND // 5, "-F", PER_SECOND // 10, "-p", SECONDS_UNDER_FIRE, "-W", LATE_SECONDS * 500_000]
    command = [str(word) for word in server.load(1, "60:00", CLIENTS_UNDER_FIRE, *options)]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=server.environment)
    try:
        list(cluster.kill_each())
        report, _ = load.communicate(timeout=SECONDS_UNDER_FIRE + LATE_SECONDS + 30)
    finally:
        end(load)
    found, failed = exchanges(report), server.errors()
    lost = sum(lost for _, lost in found.values())
    t.say(f"{sum(sent for sent, _ in found.values())} exchanges, {lost} lost, {len(failed)} statements rolled back")
    check(lost <= len(failed), f"{lost} exchanges are lost, {len(failed)} statements were rolled back:\n{report}{os.linesep.join(failed)}")
    books(cluster)
    before = leases(cluster, 1)
    # Clients that got no answer ask again, and who has a lease keeps it.
    server.take(1, "60:00", CLIENTS_UNDER_FIRE)
    after = leases(cluster, 1)
    check_equal({mac: address for mac, address in after.items() if mac in before}, before, "leases that were there before")
    check_equal(len([mac for mac in after if mac.startswith("000C6000")]), CLIENTS_UNDER_FIRE, "clients with a lease")
    books(cluster)


def main(t):
    folder = apps.unpacked("kea", *PACKAGES)
    with Cluster(t) as cluster:
        with t.case("its schema, by its own tool"):
            make_schema(t, folder, cluster)
        with Server(t, folder, cluster, "first") as server:
            with t.case("clients take leases, and triggers count them"):
                server.take(1, "00:00", LEASES)
                check_equal((len(leases(cluster, 1)), books(cluster)), (LEASES, {1: LEASES}), "leases")
            with t.case("a host gets what the database has for it"):
                reservations(cluster, server)
            with t.case("leases are renewed, released and expire"):
                come_and_go(t, cluster, server)
            with t.case("leases and statistics by its control socket"):
                by_command(cluster, server)
            with t.case("a subnet of the database comes and goes"):
                from_database(cluster, server)
        with Server(t, folder, cluster, "second") as server:
            with t.case("a server that is started anew knows who has what"):
                before = leases(cluster, 1)
                server.take(1, "00:00", LEASES)
                check_equal(leases(cluster, 1), before, "leases")
            with t.case("leases are taken, renewed and released while each data node is killed"):
                under_fire(t, cluster, server)
        with t.case("its tool dumps leases, counts them and loads them"):
            dump_and_upload(t, folder, cluster)


if __name__ == "__main__":
    scenario_main(main)
