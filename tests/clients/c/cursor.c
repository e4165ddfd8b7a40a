/* Connector/C with a server-side cursor: HOST PORT ROWS PREFETCH, and `zlib` for compressed packets. Prints `ok NAME` or `FAIL NAME: reason`. */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *name, const char *reason) {
    printf("FAIL %s: %s\n", name, reason);
    return 1;
}

/* The rows of a cursor and their sum; what stands between two of them is another statement of the same connection. */
static int cursor(MYSQL *connection, unsigned long rows, unsigned long prefetch) {
    const char *name = "a cursor is fetched in steps", *text = "SELECT id, v FROM app.held WHERE id <= ? ORDER BY id";
    unsigned long type = CURSOR_TYPE_READ_ONLY;
    long id = 0, limit = (long)rows, sum = 0, count = 0;
    char value[64];
    MYSQL_STMT *statement = mysql_stmt_init(connection);
    MYSQL_BIND in = {0}, out[2];
    memset(out, 0, sizeof out);
    in.buffer_type = out[0].buffer_type = MYSQL_TYPE_LONGLONG;
    in.buffer = &limit;
    out[0].buffer = &id;
    out[1].buffer_type = MYSQL_TYPE_STRING;
    out[1].buffer = value;
    out[1].buffer_length = sizeof value;
    if (mysql_stmt_attr_set(statement, STMT_ATTR_CURSOR_TYPE, &type) || mysql_stmt_attr_set(statement, STMT_ATTR_PREFETCH_ROWS, &prefetch))
        return fail(name, "attributes");
    if (mysql_stmt_prepare(statement, text, strlen(text)) || mysql_stmt_bind_param(statement, &in) || mysql_stmt_execute(statement)
        || mysql_stmt_bind_result(statement, out))
        return fail(name, mysql_stmt_error(statement));
    while (!mysql_stmt_fetch(statement)) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "row %ld", id);
        sum += id;
        count++;
        if (id != count || strcmp(value, wanted))
            return fail(name, "another row");
        if (count % 50 == 0 && mysql_query(connection, "DELETE FROM app.held WHERE id = 1"))
            return fail(name, mysql_error(connection));
    }
    if (mysql_stmt_errno(statement) || count != limit || sum != limit * (limit + 1) / 2)
        return fail(name, "rows");
    if (mysql_stmt_free_result(statement) || mysql_stmt_reset(statement) || mysql_stmt_close(statement))
        return fail(name, "close");
    printf("ok %s\n", name);
    return 0;
}

int main(int count, char **arguments) {
    if (count < 5)
        return 2;
    MYSQL *connection = mysql_init(NULL);
    if (count > 5)
        mysql_options(connection, MYSQL_OPT_COMPRESS, NULL);
    if (!mysql_real_connect(connection, arguments[1], "root", "", NULL, (unsigned)atoi(arguments[2]), NULL, 0))
        return fail("connects", mysql_error(connection));
    int failed = cursor(connection, strtoul(arguments[3], NULL, 10), strtoul(arguments[4], NULL, 10));
    mysql_close(connection);
    return failed;
}
