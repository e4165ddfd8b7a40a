#!/usr/bin/env python3
"""Tables of PERFORMANCE_SCHEMA, INFORMATION_SCHEMA and sys that Apus has and that have few rows or none: crates/sql/src/catalog/empty_tables.tsv, a line for each column.

Of PERFORMANCE_SCHEMA these are all that are empty in the reference when its `performance_schema` is OFF. Of INFORMATION_SCHEMA they are those that tell of parts of InnoDB, of
plans and profiles that nobody has asked for, and of kinds of objects that nobody can make here. Of sys these are those that are empty then, and those that Apus fills.

    tests/reference/empty_tables.py      asks the reference and writes the file
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import pymysql  # noqa: E402
from lib.harness import Scenario  # noqa: E402
from lib.mysql import MySql  # noqa: E402

FILE = ROOT / "crates/sql/src/catalog/empty_tables.tsv"
# What Apus answers itself.
ANSWERED = {"events_statements_summary_by_digest", "processlist", "persisted_variables"}
# Views of sys that are filled, crates/sql/src/admin/sys.rs.
FILLED = {"version", "schema_redundant_indexes", "statement_analysis", "x$statement_analysis", "processlist", "x$processlist", "session", "x$session"}
# Those that have rows as soon as somebody has tables, and are not filled.
MISSING = {"schema_auto_increment_columns", "x$schema_flattened_keys"}
INNODB = """BUFFER_PAGE BUFFER_PAGE_LRU BUFFER_POOL_STATS CACHED_INDEXES CMP CMPMEM CMPMEM_RESET CMP_PER_INDEX CMP_PER_INDEX_RESET CMP_RESET FT_BEING_DELETED FT_CONFIG FT_DELETED FT_INDEX_CACHE
            FT_INDEX_TABLE METRICS SESSION_TEMP_TABLESPACES TABLESPACES TABLESPACES_BRIEF TEMP_TABLE_INFO"""
OTHERS = """JSON_DUALITY_VIEWS JSON_DUALITY_VIEW_COLUMNS JSON_DUALITY_VIEW_LINKS JSON_DUALITY_VIEW_TABLES LIBRARIES OPTIMIZER_TRACE PROFILING ROUTINE_LIBRARIES ST_GEOMETRY_COLUMNS
            TABLESPACES_EXTENSIONS"""


def main():
    scenario = Scenario("empty_tables")
    with scenario.cleanup:
        server = scenario.cleanup.enter_context(MySql(scenario.directory / "y", tcp=True, options=["--performance-schema=OFF"]))
        with pymysql.connect(host="127.0.0.1", port=server.port, user="root") as link, link.cursor() as cursor:

            def rows(statement):
                cursor.execute(statement)
                return cursor.fetchall()

            def is_empty(table):
                return rows(f"SELECT COUNT(*) FROM performance_schema.{table}")[0][0] == 0

            names = [name for (name,) in rows("SHOW TABLES FROM performance_schema") if name not in ANSWERED and is_empty(name)]
            names += [f"INNODB_{name}" for name in INNODB.split()] + OTHERS.split()
            marks = ", ".join(f"'{name}'" for name in names)
            views = [name for (name,) in rows("SHOW TABLES FROM sys") if name not in MISSING and (name in FILLED or rows(f"SELECT COUNT(*) FROM sys.`{name}`")[0][0] == 0)]
            of_sys = ", ".join(f"'{name}'" for name in views)
            columns = rows(
                "SELECT LOWER(table_schema), table_name, column_name, column_type, is_nullable FROM information_schema.columns "
                f"WHERE table_schema IN ('performance_schema', 'information_schema') AND table_name IN ({marks}) "
                f"OR table_schema = 'sys' AND table_name IN ({of_sys}) ORDER BY 1, 2, ordinal_position"
            )
    FILE.write_text("".join("\t".join(cells) + "\n" for cells in columns))
    print(f"{len({cells[:2] for cells in columns})} tables, {len(columns)} columns")


if __name__ == "__main__":
    main()
