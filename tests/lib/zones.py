"""Time zones for the reference: a server that has just been made knows none by name."""

import pathlib
import struct

from .answers import connect

FOLDER = pathlib.Path("/usr/share/zoneinfo")
# Halves of hours, changes by half an hour, a zone south of the equator, one that has none, one that has given its changes up.
NAMES = ["UTC", "GMT", "MET", "Europe/Berlin", "Europe/London", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"]


def read(name):
    """The moments at which a zone changes with the number of the type it changes to, and its types: seconds east, is summer, name."""
    data = (FOLDER / name).read_bytes()
    place = 0
    for size in (4, 8):
        is_utc, is_standard, leaps, times, types, letters = struct.unpack_from(">6l", data, place + 20)
        place += 44
        if size == 4:
            place += 5 * times + 6 * types + letters + 8 * leaps + is_standard + is_utc
    moments = struct.unpack_from(f">{times}q", data, place)
    numbers = data[place + 8 * times:place + 9 * times]
    place += 9 * times
    kinds = [struct.unpack_from(">lBB", data, place + 6 * i) for i in range(types)]
    names = data[place + 6 * types:place + 6 * types + letters]
    return list(zip(moments, numbers)), [(east, summer, names[at:].split(b"\0")[0].decode()) for east, summer, at in kinds]


def load(**where):
    """What mysql_tzinfo_to_sql would write of these zones, into the server's tables."""
    connection = connect(**where)
    for number, name in enumerate(NAMES, 1):
        changes, kinds = read(name)
        statements = [f"INSERT INTO mysql.time_zone VALUES ({number}, 'N')", f"INSERT INTO mysql.time_zone_name VALUES ('{name}', {number})"]
        statements += [f"INSERT INTO mysql.time_zone_transition_type VALUES ({number}, {i}, {east}, {summer}, '{short}')"
                       for i, (east, summer, short) in enumerate(kinds)]
        statements += [f"INSERT INTO mysql.time_zone_transition VALUES ({number}, {at}, {kind})" for at, kind in changes]
        for statement in statements:
            connection.query(statement)
