"""PowerDNS with its MySQL backend, as Debian ships it: its schema, zones by its API, DNSSEC, and queries with its caches off while data nodes are killed.

Every query is a statement or more, so what a data node's death costs shows in the answers: none may be lost, and none may be an error.
A change of a zone is a transaction. One that is open at the node that is killed is rolled back (1213), which PowerDNS answers with 500, as it does for a deadlock in MySQL; the
operator's tool sends that change again.
"""

import contextlib
import re
import subprocess
import threading
import time

from lib import apps
from lib.cluster import Cluster
from lib.harness import FULL, Failure, check, check_equal, end, scenario_main, spawn
from lib.mariadb import batch

LIMIT_SECONDS = (240, 600)
# FULL asks for what is promised; in the short form the machine has other work to do.
QUERIES_PER_SECOND, SECONDS = (2000, 60) if FULL else (1000, 12)
NAMES = 200
KEY = "of this test"
SERVER, HEADERS = "/api/v1/servers/localhost", {"X-API-Key": KEY}
ROLLED_BACK = "a data node failed and the transaction was rolled back"


def configuration(folder, cluster, home, dns, web):
    host, port = cluster.sql
    settings = {
        "module-dir": folder / "usr/lib/x86_64-linux-gnu/pdns", "launch": "gmysql", "gmysql-host": host, "gmysql-port": port,
        "gmysql-user": "root", "gmysql-dbname": "pdns", "gmysql-dnssec": "yes", "local-address": "127.0.0.1", "local-port": dns,
        "api": "yes", "api-key": KEY, "webserver": "yes", "webserver-address": "127.0.0.1", "webserver-port": web,
        "webserver-allow-from": "127.0.0.1", "cache-ttl": 0, "query-cache-ttl": 0, "negquery-cache-ttl": 0,
        "zone-cache-refresh-interval": 0, "socket-dir": home, "daemon": "no", "guardian": "no", "security-poll-suffix": "",
    }  # fmt: skip
    (home / "pdns.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


@contextlib.contextmanager
def server(t, folder, cluster):
    """The ports of its API and of its DNS."""
    home = t.directory / "pdns"
    home.mkdir()
    dns, web = apps.free_port(), apps.free_port()
    configuration(folder, cluster, home, dns, web)
    log = home / "log"
    with open(log, "wb") as out:
        process = spawn([folder / "usr/sbin/pdns_server", f"--config-dir={home}"], stdout=out, stderr=out, env=apps.environment(folder))
    try:
        apps.wait_for(process, web, log, "PowerDNS")
        yield web, dns
        said = [line for line in log.read_text(errors="replace").splitlines() if is_error(line) and ROLLED_BACK not in line]
        check_equal(said, [], "errors that PowerDNS has logged")
    finally:
        end(process)


def is_error(line):
    return any(text in line for text in ("rror", "ackend reported", "ISE", "Exception"))


def api(web, method, path, body=None, wanted=200):
    status, text = apps.ask(web, method, f"{SERVER}/{path}", body, HEADERS)
    check_equal(status, wanted, f"{method} {path}: {text}")
    return text


def refused(t):
    """Changes that were rolled back, as PowerDNS tells of them."""
    return sum(ROLLED_BACK in line for line in (t.directory / "pdns" / "log").read_text(errors="replace").splitlines())


def rrset(name, kind, *contents):
    records = [{"content": content, "disabled": False} for content in contents]
    return {"name": name, "type": kind, "ttl": 60, "changetype": "REPLACE", "records": records}


def make_zones(web):
    hosts = [rrset(f"h{n}.example.org.", "A", f"192.0.2.{n % 250}") for n in range(NAMES)]
    zone = {"name": "example.org.", "kind": "Native", "nameservers": ["ns1.example.org."], "rrsets": hosts, "dnssec": True}
    api(web, "POST", "zones", zone, wanted=201)
    api(web, "PUT", "zones/example.org./rectify")
    zone = {"name": "other.test.", "kind": "Native", "nameservers": ["ns1.example.org."]}
    api(web, "POST", "zones", zone, wanted=201)
    api(web, "PATCH", "zones/other.test.", {"rrsets": [rrset("a.other.test.", "TXT", '"one"')]}, wanted=204)
    check('\\"one\\"' in api(web, "GET", "zones/other.test."), "the record is not there")
    api(web, "DELETE", "zones/other.test.", wanted=204)
    api(web, "GET", "zones/other.test.", wanted=404)


def change_zone(web, done, errors):
    """As an operator's tool does it, all the while; a change that is refused is sent again, once."""
    number = 0
    while not done.is_set():
        number += 1
        change = {"rrsets": [rrset("changed.example.org.", "TXT", f'"{number}"')]}
        try:
            if apps.ask(web, "PATCH", f"{SERVER}/zones/example.org.", change, HEADERS)[0] == 500:
                api(web, "PATCH", "zones/example.org.", change, wanted=204)
            check(f'\\"{number}\\"' in api(web, "GET", "zones/example.org."), f"change {number} is not there")
        except (Failure, OSError) as error:
            errors.append(str(error))
        time.sleep(0.05)  # not so fast that it is the load


def ask_queries(t, folder, dns):
    """dnsperf's report."""
    queries = t.directory / "queries"
    queries.write_text("".join(f"h{n}.example.org A\n" for n in range(NAMES)) + "nothing.example.org A\n")
    command = [folder / "usr/bin/dnsperf", "-s", "127.0.0.1", "-p", str(dns), "-d", queries, "-l", str(SECONDS), "-c", "4", "-Q", str(QUERIES_PER_SECOND)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=apps.environment(folder))


def figure(report, name):
    return float(re.search(rf"{name}:? +([0-9.]+)", report).group(1))


def under_fire(t, folder, cluster, web, dns):
    done, errors = threading.Event(), []
    operator = threading.Thread(target=change_zone, args=(web, done, errors), daemon=True)
    operator.start()
    load = ask_queries(t, folder, dns)
    try:
        list(cluster.kill_each())
        report, _ = load.communicate(timeout=SECONDS + 60)
    finally:
        done.set()
        operator.join(70)
        end(load)
    t.say(f"{figure(report, 'Queries per second'):.0f} queries/s, the slowest took {figure(report, '.*max') * 1000:.0f} ms, {figure(report, 'Queries lost'):.0f} lost, {refused(t)} changes sent again")
    check_equal(figure(report, "Queries lost"), 0, f"queries without an answer\n{report}")
    check("SERVFAIL" not in report and "REFUSED" not in report, report)
    check_equal(errors, [], "changes of the zone that failed")


def main(t):
    folder = apps.unpacked("powerdns", "pdns-server", "pdns-backend-mysql", "dnsperf")
    with Cluster(t) as cluster:
        host, port = cluster.sql
        with t.case("its schema"):
            schema = folder / "usr/share/pdns-backend-mysql/schema"
            schema = "".join((schema / f"{name}.mysql.sql").read_text() for name in ("schema", "enable-foreign-keys"))
            code, text = batch(f"CREATE DATABASE pdns; USE pdns; {schema}", host=host, port=port)
            check(code == 0, text)
        with server(t, folder, cluster) as (web, dns):
            with t.case("zones, records and keys by its API"):
                make_zones(web)
            with t.case("queries and changes go on while each data node is killed and joins again"):
                under_fire(t, folder, cluster, web, dns)


if __name__ == "__main__":
    scenario_main(main)
