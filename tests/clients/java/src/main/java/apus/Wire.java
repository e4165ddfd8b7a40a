package apus;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** Cursors and compressed packets of Connector/J. */
public final class Wire {
    private static Connection open(String options) throws SQLException {
        String url = "jdbc:mysql://" + System.getenv("APUS_HOST") + ":" + System.getenv("APUS_PORT") + "/" + System.getenv("APUS_DB") + "?" + options;
        return DriverManager.getConnection(url, "root", "");
    }

    private static void cursor(Connection connection, int step) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT id, v FROM held WHERE id <= ? ORDER BY id");
                Statement between = connection.createStatement()) {
            statement.setFetchSize(step);
            for (int limit : new int[] {0, 1, step, 5 * step, 5 * step + 1}) {
                statement.setInt(1, limit);
                int count = 0;
                try (ResultSet rows = statement.executeQuery()) {
                    while (rows.next()) {
                        count++;
                        Session.equal(rows.getInt(1), count);
                        Session.equal(rows.getString(2), "row " + count);
                        if (count % 100 == 0) {
                            // Only with a cursor may another statement run before all rows are read.
                            between.executeUpdate("REPLACE INTO held VALUES (1, 'row 1')");
                        }
                    }
                }
                Session.equal(count, limit);
            }
            statement.setInt(1, 100);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next(); // closed long before its end
            }
        }
    }

    private static void compressed(Connection connection) throws SQLException {
        String sent = "größer ".repeat(2_500_000);
        try (PreparedStatement statement = connection.prepareStatement("SELECT LENGTH(?), REPEAT('x', 5000000)")) {
            statement.setString(1, sent);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                Session.equal(rows.getInt(1), 9 * 2_500_000);
                Session.equal(rows.getString(2).length(), 5_000_000);
            }
        }
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SHOW STATUS LIKE 'Compression_algorithm'")) {
            rows.next();
            Session.equal(rows.getString(2), "zlib");
        }
    }

    public static void main(String[] arguments) {
        String plain = "sslMode=DISABLED&allowPublicKeyRetrieval=true";
        for (String how : new String[] {plain, "sslMode=REQUIRED", plain + "&useCompression=true"}) {
            for (int step : new int[] {1, 37, 1000}) {
                Session.run("cursor in steps of " + step + ", " + how, () -> {
                    try (Connection connection = open(how + "&useServerPrepStmts=true&useCursorFetch=true")) {
                        cursor(connection, step);
                    }
                });
            }
        }
        for (String how : new String[] {plain, "sslMode=REQUIRED", plain + "&useServerPrepStmts=true"}) {
            Session.run("compressed packets, " + how, () -> {
                try (Connection connection = open(how + "&useCompression=true")) {
                    compressed(connection);
                }
            });
        }
    }
}
