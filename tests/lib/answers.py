"""What a server answers to a statement, as lines that can be read, recorded and compared.

    = NAME TYPE | NAME TYPE         the columns of a result
    | value | value                 a row; NULL is ~, what is no printable text is hexadecimal
    + affected=1 id=7               a statement without a result
    ! 1054 42S22 words              an error
    W 1292 words                    a warning; N a note

$FILES in a statement, and in the answer, is the directory that the server's `secure_file_priv` names.

CALL, also by EXECUTE, answers with a result of each SELECT and then `+`, or `!` where it ended. Of several statements in one, only the first is shown.
"""

import pathlib
import shutil

import pymysql
from pymysql.constants import FIELD_TYPE, FLAG, CLIENT

TYPES = {
    FIELD_TYPE.DECIMAL: "DECIMAL", FIELD_TYPE.NEWDECIMAL: "DECIMAL", FIELD_TYPE.TINY: "TINYINT", FIELD_TYPE.SHORT: "SMALLINT",
    FIELD_TYPE.INT24: "MEDIUMINT", FIELD_TYPE.LONG: "INT", FIELD_TYPE.LONGLONG: "BIGINT", FIELD_TYPE.FLOAT: "FLOAT",
    FIELD_TYPE.DOUBLE: "DOUBLE", FIELD_TYPE.NULL: "NULL", FIELD_TYPE.TIMESTAMP: "TIMESTAMP", FIELD_TYPE.DATE: "DATE",
    FIELD_TYPE.TIME: "TIME", FIELD_TYPE.DATETIME: "DATETIME", FIELD_TYPE.YEAR: "YEAR", FIELD_TYPE.NEWDATE: "DATE",
    FIELD_TYPE.VARCHAR: "VARCHAR", FIELD_TYPE.BIT: "BIT", FIELD_TYPE.JSON: "JSON", FIELD_TYPE.ENUM: "ENUM", FIELD_TYPE.SET: "SET",
    FIELD_TYPE.GEOMETRY: "GEOMETRY",
}
TEXTS = {FIELD_TYPE.VAR_STRING: ("VARBINARY", "VARCHAR"), FIELD_TYPE.STRING: ("BINARY", "CHAR"), FIELD_TYPE.BLOB: ("BLOB", "TEXT"),
         FIELD_TYPE.TINY_BLOB: ("BLOB", "TEXT"), FIELD_TYPE.MEDIUM_BLOB: ("BLOB", "TEXT"), FIELD_TYPE.LONG_BLOB: ("BLOB", "TEXT")}
WITH_SCALE = ("DECIMAL", "TIME", "DATETIME", "TIMESTAMP")
BINARY = 63
# What the clock of each session shows, so that recorded answers stay true: 2023-11-14 22:13:20.
NOW = 1700000000
# Statements without end are a finding, not a hang.
SECONDS = 60


class ServerError(Exception):
    pass


def _raise(data):
    errno = int.from_bytes(data[1:3], "little")
    state = data[4:9].decode() if data[3:4] == b"#" else "HY000"
    words = data[9 if data[3:4] == b"#" else 3:].decode("utf-8", "replace")
    raise ServerError(errno, state, words)


pymysql.err.raise_mysql_exception = _raise
pymysql.protocol.err.raise_mysql_exception = _raise

# Bytes of a file in one packet: small, so that lines lie across packets.
FILE_PACKET = 7


class _FileOfItsName:
    """What LOAD DATA LOCAL INFILE 'name' is sent: the name itself, so that a case needs no files. `hex:...` is sent as these bytes, `refuse:` not at all."""

    def __init__(self, name, connection):
        self.name, self.connection = name, connection

    def send_data(self):
        content = bytes.fromhex(self.name[4:].decode()) if self.name.startswith(b"hex:") else self.name
        content = b"" if content == b"refuse:" else content
        for at in range(0, len(content), FILE_PACKET):
            self.connection.write_packet(content[at:at + FILE_PACKET])
        self.connection.write_packet(b"")


pymysql.connections.LoadLocalFile = _FileOfItsName


def connect(database=None, user="root", **where):
    connection = pymysql.connect(user=user, password="", charset="utf8mb4", collation="utf8mb4_general_ci", conv={}, database=database,
                                 autocommit=None, read_timeout=SECONDS, client_flag=CLIENT.MULTI_STATEMENTS, local_infile=True, **where)
    connection.query(f"SET time_zone = '+00:00', timestamp = {NOW}")
    return connection


def column(field):
    kind = TYPES.get(field.type_code) or TEXTS[field.type_code][field.charsetnr != BINARY]
    if field.flags & FLAG.ENUM:
        kind = "ENUM"
    elif field.flags & FLAG.SET:
        kind = "SET"
    if kind in WITH_SCALE and field.scale:
        kind += f"({field.scale})"
    if field.flags & FLAG.UNSIGNED and kind != "YEAR" and not kind.startswith(("BIT", "TIMESTAMP")):
        kind += " UNSIGNED"
        if field.flags & FLAG.ZEROFILL:
            kind += f" ZEROFILL({field.length})"
    return f"{field.name} {kind}"


def value(data):
    if data is None:
        return "~"
    if isinstance(data, bytes):
        try:
            data = data.decode("ascii")
        except UnicodeDecodeError:
            return "0x" + data.hex()
        if not data.isprintable():
            return "0x" + data.encode().hex()
    return data.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\0", "\\0").replace("|", "\\|")


FILES = "$FILES"


def files_of(connection):
    """The directory whose files statements may write and read; it is on this machine."""
    connection.query("SELECT @@secure_file_priv")
    return (connection._result.rows[0][0] or "").rstrip("/")


def clear_files(connection):
    """Removes them all."""
    directory = files_of(connection)
    if directory in ("", "NULL"):
        return
    for path in pathlib.Path(directory).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def ask(connection, statement):
    """The lines of an answer: of its results, one after the other, and then of the warnings that are left."""
    if FILES not in statement:
        return asked(connection, statement)
    if not hasattr(connection, "files"):
        connection.files = files_of(connection)
    lines = asked(connection, statement.replace(FILES, connection.files))
    return [line.replace(connection.files, FILES) for line in lines]


def asked(connection, statement):
    lines, read = [], lambda: connection.query(statement)
    several = statement.lower().startswith(("call", "execute"))
    try:
        while True:
            read()
            result = connection._result
            lines += shown(result)
            if not (several and result.has_next):
                break
            read = connection.next_result
    except ServerError as error:
        errno, state, words = error.args
        return lines + [f"! {errno} {state} {words}".replace("\n", " ")]
    except UnicodeDecodeError as error:
        return lines + [f"! not text: {error}"]
    if result.warning_count and not statement.lower().startswith("show warnings"):
        connection.query("SHOW WARNINGS")
        lines += [f"{level[0]} {code} {words}".replace("\n", " ") for level, code, words in connection._result.rows]
    return lines


def shown(result):
    """The lines of one result."""
    if result.description:
        return ["= " + " | ".join(column(field) for field in result.fields), *("| " + " | ".join(map(value, row)) for row in result.rows)]
    line = f"+ affected={result.affected_rows} id={result.insert_id}"
    return [line + " " + result.message.decode() if result.message else line]
