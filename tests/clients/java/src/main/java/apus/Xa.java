package apus;

import com.mysql.cj.jdbc.MysqlXADataSource;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;
import javax.sql.XAConnection;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/** Branches of distributed transactions by Connector/J, as a transaction manager uses them. */
public final class Xa {
    private record Name(int getFormatId, byte[] getGlobalTransactionId, byte[] getBranchQualifier) implements Xid {
        Name(String global, String branch) {
            this(77, global.getBytes(), branch.getBytes());
        }
    }

    private static XAConnection open() throws SQLException {
        MysqlXADataSource source = new MysqlXADataSource();
        source.setUrl("jdbc:mysql://" + System.getenv("APUS_HOST") + ":" + System.getenv("APUS_PORT") + "/" + System.getenv("APUS_DB") + "?sslMode=DISABLED&allowPublicKeyRetrieval=true");
        source.setUser("root");
        return source.getXAConnection();
    }

    private static int sum() throws SQLException {
        XAConnection own = open();
        try (Connection connection = own.getConnection(); Statement statement = connection.createStatement(); ResultSet row = statement.executeQuery("SELECT COALESCE(SUM(v), 0) FROM branches")) {
            row.next();
            return row.getInt(1);
        } finally {
            own.close();
        }
    }

    private static void change(XAConnection connection, Xid xid, String statement) throws Exception {
        XAResource resource = connection.getXAResource();
        resource.start(xid, XAResource.TMNOFLAGS);
        try (Statement work = connection.getConnection().createStatement()) {
            work.executeUpdate(statement);
        }
        resource.end(xid, XAResource.TMSUCCESS);
    }

    private static boolean isPrepared(XAResource resource, Name xid) throws XAException {
        for (Xid found : resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
            if (found.getFormatId() == 77 && Arrays.equals(found.getGlobalTransactionId(), xid.getGlobalTransactionId) && Arrays.equals(found.getBranchQualifier(), xid.getBranchQualifier)) {
                return true;
            }
        }
        return false;
    }

    public static void main(String[] arguments) throws Exception {
        XAConnection first = open();
        try (Statement statement = first.getConnection().createStatement()) {
            statement.execute("CREATE TABLE branches (id INT PRIMARY KEY, v INT)");
        }
        Session.run("a branch in two phases, ended by another connection", () -> {
            Name xid = new Name("global \0\u00ff", "one");
            change(first, xid, "INSERT INTO branches VALUES (1, 1)");
            Session.equal(first.getXAResource().prepare(xid), XAResource.XA_OK);
            Session.equal(sum(), 0);
            XAConnection second = open();
            Session.equal(isPrepared(second.getXAResource(), xid), true);
            second.getXAResource().commit(xid, false);
            Session.equal(isPrepared(second.getXAResource(), xid), false);
            second.close();
            Session.equal(sum(), 1);
        });
        Session.run("a branch in one phase", () -> {
            Name xid = new Name("global", "two");
            change(first, xid, "INSERT INTO branches VALUES (2, 2)");
            first.getXAResource().commit(xid, true);
            Session.equal(sum(), 3);
        });
        Session.run("a branch that is rolled back after its preparation", () -> {
            Name xid = new Name("global", "three");
            change(first, xid, "INSERT INTO branches VALUES (3, 4)");
            first.getXAResource().prepare(xid);
            first.getXAResource().rollback(xid);
            Session.equal(sum(), 3);
            try {
                first.getXAResource().commit(xid, false);
                throw new AssertionError("committed after its end");
            } catch (XAException e) {
                Session.equal(e.errorCode, XAException.XAER_NOTA);
            }
        });
        first.close();
    }
}
