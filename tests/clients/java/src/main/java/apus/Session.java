package apus;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.Arrays;

/** A session of Connector/J against Apus: prints `ok NAME` or `FAIL NAME: reason` per case. */
public final class Session {
    interface Case {
        void run() throws Exception;
    }

    static void run(String name, Case body) {
        try {
            body.run();
            System.out.println("ok " + name);
        } catch (Exception | AssertionError e) {
            System.out.println("FAIL " + name + ": " + String.valueOf(e).replace('\n', ' '));
        }
    }

    static void equal(Object found, Object wanted) {
        if (!wanted.equals(found)) {
            throw new AssertionError("found " + found + ", wanted " + wanted);
        }
    }

    private static void refused(int number, String state, Case body) throws Exception {
        try {
            body.run();
        } catch (SQLException e) {
            equal(e.getErrorCode(), number);
            equal(e.getSQLState(), state);
            return;
        }
        throw new AssertionError("not refused with " + number);
    }

    private static Connection open(boolean serverPrepared) throws SQLException {
        String url = "jdbc:mysql://" + System.getenv("APUS_HOST") + ":" + System.getenv("APUS_PORT") + "/"
            + System.getenv("APUS_DB") + "?sslMode=DISABLED&allowPublicKeyRetrieval=true&useServerPrepStmts=" + serverPrepared;
        return DriverManager.getConnection(url, "root", "");
    }

    private static void types(Connection connection, String table) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE " + table + " (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, n BIGINT, f DOUBLE, "
                + "s VARCHAR(50), b VARBINARY(50), d DECIMAL(10,2), day DATE, at DATETIME, UNIQUE KEY one_s (s))");
        }
        LocalDateTime at = LocalDateTime.of(2024, 2, 29, 23, 59, 58);
        String insert = "INSERT INTO " + table + " (n, f, s, b, d, day, at) VALUES (?, ?, ?, ?, ?, ?, ?)";
        int id;
        try (PreparedStatement statement = connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
            statement.setLong(1, -7);
            statement.setDouble(2, 2.5);
            statement.setString(3, "größer");
            statement.setBytes(4, new byte[] {0, -1});
            statement.setBigDecimal(5, new BigDecimal("12.50"));
            statement.setObject(6, LocalDate.of(2024, 2, 29));
            statement.setObject(7, at);
            equal(statement.executeUpdate(), 1);
            try (ResultSet keys = statement.getGeneratedKeys()) {
                keys.next();
                id = keys.getInt(1);
            }
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM " + table + " WHERE id = ?")) {
            statement.setInt(1, id);
            try (ResultSet rows = statement.executeQuery()) {
                equal(rows.next(), true);
                equal(rows.getLong("n"), -7L);
                equal(rows.getDouble("f"), 2.5);
                equal(rows.getString("s"), "größer");
                equal(Arrays.equals(rows.getBytes("b"), new byte[] {0, -1}), true);
                equal(rows.getBigDecimal("d"), new BigDecimal("12.50"));
                equal(rows.getObject("day", LocalDate.class), LocalDate.of(2024, 2, 29));
                equal(rows.getObject("at", LocalDateTime.class), at);
                equal(rows.next(), false);
            }
        }
    }

    private static void batches(Connection connection, String table) throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + table + " (n, s) VALUES (?, ?)")) {
            for (int i = 0; i < 50; i++) {
                statement.setInt(1, i);
                statement.setString(2, "p" + i);
                statement.addBatch();
            }
            equal(statement.executeBatch().length, 50);
        }
        connection.commit();
        connection.setAutoCommit(true);
        equal(number(connection, "SELECT COUNT(*) FROM " + table + " WHERE s LIKE 'p%'"), 50L);
    }

    private static void transactions(Connection connection, String table) throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE " + table + " SET n = 1000 WHERE s = 'p5'");
            connection.rollback();
            equal(number(connection, "SELECT n FROM " + table + " WHERE s = 'p5'"), 5L);
            statement.executeUpdate("UPDATE " + table + " SET n = 1000 WHERE s = 'p5'");
            connection.commit();
        }
        connection.setAutoCommit(true);
        equal(number(connection, "SELECT n FROM " + table + " WHERE s = 'p5'"), 1000L);
    }

    /** Connector/J asks the server not to send more: SET SQL_SELECT_LIMIT. */
    private static void limits(Connection connection, String table) throws SQLException {
        String query = "SELECT s FROM " + table + " WHERE s LIKE 'p%' ORDER BY n";
        try (Statement statement = connection.createStatement(); PreparedStatement prepared = connection.prepareStatement(query)) {
            statement.setMaxRows(3);
            prepared.setMaxRows(7);
            equal(rows(statement.executeQuery(query)), 3);
            equal(rows(prepared.executeQuery()), 7);
            statement.setMaxRows(0);
            equal(rows(statement.executeQuery(query)), 50);
            prepared.setMaxRows(0);
            equal(rows(prepared.executeQuery()), 50);
        }
        equal(number(connection, "SELECT @@sql_select_limit = 18446744073709551615"), 1L);
    }

    private static int rows(ResultSet result) throws SQLException {
        int count = 0;
        try (result) {
            while (result.next()) {
                count++;
            }
        }
        return count;
    }

    private static void failures(Connection connection, String table) throws Exception {
        try (Statement statement = connection.createStatement()) {
            refused(1062, "23000", () -> statement.executeUpdate("INSERT INTO " + table + " (s) VALUES ('p1')"));
            refused(1146, "42S02", () -> statement.executeQuery("SELECT * FROM no_such_table"));
            refused(1064, "42000", () -> statement.execute("SELEKT 1"));
        }
        equal(connection.isValid(5), true);
    }

    private static long number(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            rows.next();
            return rows.getLong(1);
        }
    }

    public static void main(String[] arguments) {
        for (boolean serverPrepared : new boolean[] {false, true}) {
            String mode = serverPrepared ? "server-prepared" : "text";
            String table = serverPrepared ? "java_p" : "java_t";
            try (Connection connection = open(serverPrepared)) {
                run(mode + " types", () -> types(connection, table));
                run(mode + " batches", () -> batches(connection, table));
                run(mode + " transactions", () -> transactions(connection, table));
                run(mode + " limits", () -> limits(connection, table));
                run(mode + " errors", () -> failures(connection, table));
            } catch (SQLException e) {
                System.out.println("FAIL " + mode + " connect: " + e);
            }
        }
    }
}
