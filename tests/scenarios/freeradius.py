"""FreeRADIUS with its SQL module, as Debian ships it: authentication and accounting by radclient, over its schema for MySQL and over that for NDB, while data nodes are killed.

Its schema for NDB has one line that no MySQL takes (a TIMESTAMP without decimals whose default has six); it is loaded with that line mended.
"""

import concurrent.futures
import contextlib
import threading

import pymysql

from lib import apps
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, end, run, scenario_main, spawn
from lib.mariadb import batch

LIMIT_SECONDS = (240, 600)
PACKAGES = ["freeradius", "freeradius-mysql", "freeradius-utils", "freeradius-config", "freeradius-common"]
SECRET, USERS, CLIENTS = "of this test", 50, 4
SESSIONS = 400 if FULL else 20
# What its modules name their tables, and where its queries are.
TABLES = """
    acct_table1 = "radacct"
    acct_table2 = "radacct"
    postauth_table = "radpostauth"
    authcheck_table = "radcheck"
    groupcheck_table = "radgroupcheck"
    authreply_table = "radreply"
    groupreply_table = "radgroupreply"
    usergroup_table = "radusergroup"
    client_table = "nas"
    group_attribute = "SQL-Group"
"""


def configuration(folder, home, sql, database, ports):
    host, port = sql
    conf = folder / "etc/freeradius/3.0"
    auth, acct = ports
    (home / "radiusd.conf").write_text(
        f"""
prefix = "{home}"
raddbdir = "{conf}"
confdir = "{conf}"
modconfdir = "{conf}/mods-config"
logdir = "{home}"
radacctdir = "{home}"
run_dir = "{home}"
db_dir = "{home}"
libdir = "{folder}/usr/lib/freeradius"
log {{ destination = files
       file = "{home}/radius.log" }}
security {{ allow_vulnerable_openssl = yes }}
thread pool {{ start_servers = {CLIENTS}
               max_servers = {2 * CLIENTS} }}
client test {{ ipaddr = 127.0.0.1
               secret = "{SECRET}" }}
modules {{
  expr {{
  }}
  pap {{
  }}
  sql {{
    dialect = "mysql"
    driver = "rlm_sql_mysql"
    server = "{host}"
    port = {port}
    login = "root"
    radius_db = "{database}"
{TABLES}
    read_clients = no
    pool {{ start = 2
            min = 1
            max = {2 * CLIENTS} }}
    $INCLUDE {conf}/mods-config/sql/main/mysql/queries.conf
  }}
}}
policy {{
  $INCLUDE {conf}/policy.d/accounting
}}
server default {{
  listen {{ type = auth
            ipaddr = 127.0.0.1
            port = {auth} }}
  listen {{ type = acct
            ipaddr = 127.0.0.1
            port = {acct} }}
  authorize {{
    sql
    pap
  }}
  authenticate {{
    Auth-Type PAP {{
      pap
    }}
  }}
  preacct {{
    acct_unique
  }}
  accounting {{
    sql
  }}
  post-auth {{
    sql
  }}
}}
"""
    )


@contextlib.contextmanager
def server(t, folder, cluster, database):
    """A function that sends one packet and gives the answer's text."""
    home = t.directory / database
    home.mkdir()
    ports = (apps.free_port(), apps.free_port())
    configuration(folder, home, cluster.sql, database, ports)
    environment, log = apps.environment(folder), home / "radius.log"
    dictionary = folder / "usr/share/freeradius"
    with open(home / "out", "wb") as out:
        command = [folder / "usr/sbin/freeradius", "-f", "-d", home, "-D", dictionary, "-n", "radiusd"]
        process = spawn(command, stdout=out, stderr=out, env=environment)

    def tell(kind, **attributes):
        lines = ", ".join(f'{name.replace("_", "-")} = "{value}"' for name, value in attributes.items())
        where = f"127.0.0.1:{ports[kind == 'acct']}"
        client = [folder / "usr/bin/radclient", "-D", dictionary, "-x", "-r", "3", "-t", "5", where, kind, SECRET]
        check(process.poll() is None, f"FreeRADIUS ended:\n{(home / 'out').read_text()}{log.read_text() if log.exists() else ''}")
        return run(client, stdin=lines, env=environment, ok=False)

    try:
        yield tell
        said = [line for line in log.read_text(errors="replace").splitlines() if "rror" in line or "rlm_sql_mysql: MYSQL" in line]
        check_equal(said, [], "errors that FreeRADIUS has logged")
    finally:
        end(process)


def is_known(tell, user, password):
    code, text = tell("auth", User_Name=user, User_Password=password)
    check("Received Access-" in text, f"{user} gets no answer ({code}):\n{text}")
    return "Received Access-Accept" in text


def account(tell, session, user, status, seconds):
    code, text = tell(
        "acct", Acct_Status_Type=status, Acct_Session_Id=session, User_Name=user, NAS_IP_Address="192.0.2.9", NAS_Port="3",
        Acct_Session_Time=seconds, Acct_Input_Octets=str(1000 * seconds), Framed_IP_Address="198.51.100.7",
    )  # fmt: skip
    check("Accounting-Response" in text, f"{session} {status} gets no answer ({code}):\n{text}")


def one_session(tell, number):
    """A subscriber comes, is served, and goes."""
    user = f"user{number % USERS}"
    check(is_known(tell, user, f"secret {number % USERS}"), f"{user} is refused")
    for status, seconds in (("Start", 0), ("Interim-Update", 60), ("Stop", 90)):
        account(tell, f"s{number}", user, status, seconds)
    check(not is_known(tell, user, "something else"), f"{user} comes in with a wrong password")


def load(cluster, folder, database, schema):
    host, port = cluster.sql
    text = (folder / "etc/freeradius/3.0/mods-config/sql/main" / schema / "schema.sql").read_text()
    if schema == "ndb":
        text = text.replace("authdate timestamp NOT NULL", "authdate timestamp(6) NOT NULL")
    users = ", ".join(f"('user{n}', 'Cleartext-Password', ':=', 'secret {n}')" for n in range(USERS))
    users = f"INSERT INTO radcheck (username, attribute, op, value) VALUES {users}"
    groups = "INSERT INTO radusergroup (username, groupname) SELECT username, 'people' FROM radcheck"
    reply = "INSERT INTO radgroupreply (groupname, attribute, op, value) VALUES ('people', 'Session-Timeout', '=', '3600')"
    code, said = batch(f"CREATE DATABASE {database}; USE {database}; {text}; {users}; {groups}; {reply};", host=host, port=port)
    check(code == 0 and "ERROR" not in said, said)


def books(cluster, database):
    """{session: (seconds, octets, whether it has ended)}"""
    host, port = cluster.sql
    with contextlib.closing(pymysql.connect(host=host, port=port, user="root", database=database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT acctsessionid, acctsessiontime, acctinputoctets, acctstoptime IS NOT NULL FROM radacct")
        return {row[0]: row[1:] for row in cursor.fetchall()}


def under_fire(t, cluster, tell, database):
    """Subscribers come and go while each data node is killed and joins again; every session is in the books, once and whole."""
    stop, done = threading.Event(), []

    def work(client):
        for number in range(client, 1_000_000, CLIENTS):
            if stop.is_set() and number >= SESSIONS:
                return
            one_session(tell, number)
            done.append(number)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(work, client) for client in range(CLIENTS)]
        try:
            list(cluster.kill_each())
        finally:
            stop.set()
        [client.result(120) for client in clients]
    found = books(cluster, database)
    wrong = {n: found.get(f"s{n}") for n in done if found.get(f"s{n}") != (90, 90_000, 1)}
    check_equal(wrong, {}, "sessions that are not in the books as they were")
    check_equal(len(found), len(done), "sessions in the books")
    t.say(f"{len(done)} sessions: each two logins and three accounting packets")


def main(t):
    folder = apps.unpacked("freeradius", *PACKAGES)
    with Cluster(t) as cluster:
        for schema in ("mysql", "ndb"):
            database = f"radius_{schema}"
            with t.case(f"its schema for {schema}"):
                load(cluster, folder, database, schema)
            with server(t, folder, cluster, database) as tell:
                with t.case(f"subscribers come and go over the schema for {schema} while each data node is killed"):
                    under_fire(t, cluster, tell, database)


if __name__ == "__main__":
    scenario_main(main)
