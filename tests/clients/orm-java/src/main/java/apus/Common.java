package apus;

import java.sql.SQLException;
import java.util.Objects;
import java.util.concurrent.Callable;

/** What the applications of this folder share: checks, and a loop that writes until it is told to stop. */
final class Common {
    interface Step {
        void run() throws Exception;
    }

    interface Numbered {
        void run(int number) throws Exception;
    }

    static void same(Object found, Object wanted, String what) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(what + ": " + found + ", not " + wanted);
        }
    }

    /** The error's number in MySQL; it must be of a class of the library. */
    static int refused(Class<? extends Throwable> kind, Callable<?> action, String what) throws Exception {
        try {
            action.call();
        } catch (Throwable error) {
            if (!kind.isInstance(error)) {
                throw new AssertionError(what + " is refused by " + error, error);
            }
            return number(error);
        }
        throw new AssertionError(what + " was not refused");
    }

    static int number(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLException sql && sql.getErrorCode() != 0) {
                return sql.getErrorCode();
            }
        }
        return 0;
    }

    /** Runs `one` for 1, 2, 3 until a line comes in; a transaction that MySQL rolled back as a deadlock runs again. */
    static void write(Numbered one) throws Exception {
        System.out.println("writes");
        int done = 0;
        int retried = 0;
        while (System.in.available() == 0) {
            try {
                one.run(done + 1);
                done++;
            } catch (Exception error) {
                if (number(error) != 1213) {
                    throw error;
                }
                retried++;
            }
        }
        System.out.println("{\"numbers\": " + done + ", \"retried\": " + retried + "}");
    }

    static String address(String port, String database) {
        return "jdbc:mysql://127.0.0.1:" + port + "/" + database + "?connectionTimeZone=UTC";
    }
}
