//! The consistency conditions of TPC-C (clause 3.3.2), each as a statement whose rows are what breaks it.

use std::time::{Duration, Instant};

use super::schema::DATABASE;
use crate::bench::target::Server;

const DEADLINE: Duration = Duration::from_secs(600);

struct Condition {
    number: u32,
    says: &'static str,
    broken: &'static str,
    /// Holds of what was loaded only.
    at_first: bool,
}

const CONDITIONS: [Condition; 12] = [
    Condition {
        number: 1,
        says: "a warehouse's payments are those of its districts",
        broken: "SELECT w_id, w_ytd, total FROM warehouse JOIN (SELECT d_w_id, SUM(d_ytd) AS total FROM district \
                 GROUP BY d_w_id) d ON d_w_id = w_id WHERE w_ytd <> total",
        at_first: false,
    },
    Condition {
        number: 2,
        says: "a district's next order follows its last one, delivered or not",
        broken: "SELECT d_w_id, d_id, d_next_o_id, last, newest FROM district \
                 JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS last FROM orders GROUP BY o_w_id, o_d_id) o \
                 ON o_w_id = d_w_id AND o_d_id = d_id \
                 LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest FROM new_order GROUP BY no_w_id, no_d_id) n \
                 ON no_w_id = d_w_id AND no_d_id = d_id \
                 WHERE d_next_o_id - 1 <> last OR newest <> last",
        at_first: false,
    },
    Condition {
        number: 3,
        says: "new orders of a district have numbers without gaps",
        broken: "SELECT no_w_id, no_d_id, MIN(no_o_id), MAX(no_o_id), COUNT(*) FROM new_order GROUP BY no_w_id, no_d_id \
                 HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)",
        at_first: false,
    },
    Condition {
        number: 4,
        says: "a district has as many lines as its orders say",
        broken: "SELECT o_w_id, o_d_id, wanted, found FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS wanted FROM orders \
                 GROUP BY o_w_id, o_d_id) o JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS found FROM order_line \
                 GROUP BY ol_w_id, ol_d_id) l ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE wanted <> found",
        at_first: false,
    },
    Condition {
        number: 5,
        says: "an order has no carrier exactly while it is a new order",
        broken: "SELECT o_w_id, o_d_id, o_id, o_carrier_id, no_o_id FROM orders LEFT JOIN new_order \
                 ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
                 WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
        at_first: false,
    },
    Condition {
        number: 6,
        says: "an order has as many lines as it says",
        broken: "SELECT o_w_id, o_d_id, o_id, o_ol_cnt, found FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, \
                 COUNT(*) AS found FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
                 ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE o_ol_cnt <> COALESCE(found, 0)",
        at_first: false,
    },
    Condition {
        number: 7,
        says: "a line was delivered exactly when its order was",
        broken: "SELECT o_w_id, o_d_id, o_id, o_carrier_id, undelivered FROM orders JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, \
                 SUM(ol_delivery_d IS NULL) AS undelivered, COUNT(*) AS found FROM order_line \
                 GROUP BY ol_w_id, ol_d_id, ol_o_id) l ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
                 WHERE undelivered <> IF(o_carrier_id IS NULL, found, 0)",
        at_first: false,
    },
    Condition {
        number: 8,
        says: "a warehouse's payments are in the history",
        broken: "SELECT w_id, w_ytd, total FROM warehouse JOIN (SELECT h_w_id, SUM(h_amount) AS total FROM history \
                 GROUP BY h_w_id) h ON h_w_id = w_id WHERE w_ytd <> total",
        at_first: false,
    },
    Condition {
        number: 9,
        says: "a district's payments are in the history",
        broken: "SELECT d_w_id, d_id, d_ytd, total FROM district JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS total \
                 FROM history GROUP BY h_w_id, h_d_id) h ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd <> total",
        at_first: false,
    },
    Condition {
        number: 10,
        says: "a customer owes what was delivered and not paid",
        broken: "SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid FROM customer LEFT JOIN (SELECT o_w_id, o_d_id, \
                 o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
                 AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) o \
                 ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, \
                 SUM(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) h \
                 ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
                 WHERE c_balance <> COALESCE(delivered, 0) - COALESCE(paid, 0)",
        at_first: false,
    },
    Condition {
        number: 11,
        says: "2100 orders of each district are delivered at first",
        broken: "SELECT o_w_id, o_d_id, orders, waiting FROM (SELECT o_w_id, o_d_id, COUNT(*) AS orders FROM orders \
                 GROUP BY o_w_id, o_d_id) o JOIN (SELECT no_w_id, no_d_id, COUNT(*) AS waiting FROM new_order \
                 GROUP BY no_w_id, no_d_id) n ON no_w_id = o_w_id AND no_d_id = o_d_id WHERE orders - waiting <> 2100",
        at_first: true,
    },
    Condition {
        number: 12,
        says: "what a customer owes and has paid is what was delivered",
        broken: "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, delivered FROM customer LEFT JOIN (SELECT o_w_id, \
                 o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line ON ol_w_id = o_w_id \
                 AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) o \
                 ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
                 WHERE c_balance + c_ytd_payment <> COALESCE(delivered, 0)",
        at_first: false,
    },
];

/// How many conditions were checked. `is_fresh`: nothing has been run since the tables were filled.
///
/// # Errors
/// One does not hold, or the server could not answer; all of them are tried, and what each says goes to standard error.
pub fn check(server: &Server, is_fresh: bool) -> Result<usize, String> {
    let mut connection = server.connect(0, Some(DATABASE), DEADLINE).map_err(|e| e.to_string())?;
    let (mut held, mut broken) = (0, Vec::new());
    for c in CONDITIONS.iter().filter(|c| is_fresh || !c.at_first) {
        let begin = Instant::now();
        let verdict = match connection.query(c.broken) {
            Ok(rows) if rows.is_empty() => {
                held += 1;
                "holds".to_owned()
            }
            Ok(rows) => {
                let first: Vec<_> = rows[0].iter().map(|v| v.as_deref().unwrap_or("NULL")).collect();
                format!("DOES NOT HOLD for {} rows, the first: {}", rows.len(), first.join(" "))
            }
            Err(failure) => format!("COULD NOT BE CHECKED: {failure}"),
        };
        if verdict != "holds" {
            broken.push(format!("condition {} ({}) {verdict}", c.number, c.says));
        }
        eprintln!("condition {}: {}: {verdict} ({:.1} s)", c.number, c.says, begin.elapsed().as_secs_f64());
    }
    if broken.is_empty() { Ok(held) } else { Err(broken.join("\n")) }
}
