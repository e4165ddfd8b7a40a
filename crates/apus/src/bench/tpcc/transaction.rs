//! The five transactions of TPC-C (clauses 2.4 to 2.8), in SQL text, one statement at a time as an application sends them.
//!
//! What is read to be changed is locked as it is read, so READ COMMITTED is enough for the consistency conditions. Stock rows are locked in the
//! order of their keys, so two orders cannot wait for each other.

use super::{
    input::{Input, Line, Who},
    schema::{DISTRICTS, ITEMS},
};
use crate::bench::mysql::{Connection, Failure, Row};

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Committed,
    /// As it was meant to: an item that does not exist.
    RolledBack,
}

/// A connection of a terminal, and its warehouse.
pub struct Teller<'c> {
    pub connection: &'c mut Connection,
    pub w: u64,
}

fn missing(what: &str) -> Failure {
    Failure::Lost(format!("the server found no {what}: the database is not as it was loaded"))
}

fn field<'r>(row: &'r Row, at: usize, what: &str) -> Result<&'r str, Failure> {
    row.get(at).and_then(Option::as_deref).ok_or_else(|| missing(what))
}

fn number(row: &Row, at: usize, what: &str) -> Result<u64, Failure> {
    field(row, at, what)?.parse().map_err(|_| missing(what))
}

/// `12.34` as 1234.
fn cents(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "00"));
    Some(whole.parse::<u64>().ok()? * 100 + part.parse::<u64>().ok()?)
}

/// 1234 as `12.34`.
fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

impl Teller<'_> {
    /// Runs a transaction to its commit.
    ///
    /// # Errors
    /// The server refuses a statement; the transaction may still be open then.
    pub fn run(&mut self, input: &Input) -> Result<End, Failure> {
        self.connection.execute("BEGIN")?;
        match input {
            Input::NewOrder { d, c, lines } => {
                if !self.new_order(*d, *c, lines)? {
                    self.connection.execute("ROLLBACK")?;
                    return Ok(End::RolledBack);
                }
            }
            Input::Payment { d, of, who, cents } => self.payment(*d, *of, who, *cents)?,
            Input::OrderStatus { d, who } => self.order_status(*d, who)?,
            Input::Delivery { carrier } => self.delivery(*carrier)?,
            Input::StockLevel { d, below } => self.stock_level(*d, *below)?,
        }
        self.connection.execute("COMMIT")?;
        Ok(End::Committed)
    }

    fn one(&mut self, what: &str, sql: &str) -> Result<Row, Failure> {
        self.connection.query(sql)?.pop().ok_or_else(|| missing(what))
    }

    /// False where an item does not exist.
    fn new_order(&mut self, d: u64, c: u64, lines: &[Line]) -> Result<bool, Failure> {
        let w = self.w;
        self.one(
            "customer",
            &format!(
                "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = {w} AND c_w_id = w_id \
                 AND c_d_id = {d} AND c_id = {c}"
            ),
        )?;
        let district = self.one(
            "district",
            &format!("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = {w} AND d_id = {d} FOR UPDATE"),
        )?;
        let o = number(&district, 0, "order number")?;
        let (count, all_local) = (lines.len(), u8::from(lines.iter().all(|line| line.supply == w)));
        for sql in [
            format!("UPDATE district SET d_next_o_id = {} WHERE d_w_id = {w} AND d_id = {d}", o + 1),
            format!(
                "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
                 VALUES ({o}, {d}, {w}, {c}, NOW(), {count}, {all_local})"
            ),
            format!("INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ({o}, {d}, {w})"),
        ] {
            self.connection.execute(&sql)?;
        }
        for (at, line) in (1..).zip(lines) {
            if !self.order_line((d, o, at), line)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn order_line(&mut self, (d, o, at): (u64, u64, u64), line: &Line) -> Result<bool, Failure> {
        let (w, Line { item, supply, quantity }) = (self.w, line);
        let found = self.connection.query(&format!("SELECT i_price, i_name, i_data FROM item WHERE i_id = {item}"))?;
        let Some(found) = found.first() else {
            return if *item > ITEMS { Ok(false) } else { Err(missing("item")) };
        };
        let price = cents(field(found, 0, "price")?).ok_or_else(|| missing("price"))?;
        let stock = self.one(
            "stock",
            &format!(
                "SELECT s_quantity, s_data, s_dist_{d:02} FROM stock WHERE s_i_id = {item} AND s_w_id = {supply} FOR UPDATE"
            ),
        )?;
        let left = number(&stock, 0, "quantity")?;
        let left = if left >= quantity + 10 { left - quantity } else { left + 91 - quantity };
        let remote = u8::from(*supply != w);
        let (info, amount) = (field(&stock, 2, "district")?, money(price * quantity));
        self.connection.execute(&format!(
            "UPDATE stock SET s_quantity = {left}, s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1, \
             s_remote_cnt = s_remote_cnt + {remote} WHERE s_i_id = {item} AND s_w_id = {supply}"
        ))?;
        self.connection.execute(&format!(
            "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, \
             ol_dist_info) VALUES ({o}, {d}, {w}, {at}, {item}, {supply}, {quantity}, {amount}, '{info}')"
        ))?;
        Ok(true)
    }

    /// The customer's number; of those with the same last name the middle one by first name (2.5.2.2).
    fn customer(&mut self, (w, d): (u64, u64), who: &Who) -> Result<Option<u64>, Failure> {
        let name = match who {
            Who::Number(number) => return Ok(Some(*number)),
            Who::Name(name) => name,
        };
        let sql = format!(
            "SELECT c_id FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = '{name}' ORDER BY c_first"
        );
        let rows = self.connection.query(&sql)?;
        rows.get(rows.len().saturating_sub(1) / 2).map(|row| number(row, 0, "customer")).transpose()
    }

    fn payment(&mut self, d: u64, of: (u64, u64), who: &Who, cents: u64) -> Result<(), Failure> {
        let (w, (c_w, c_d), amount) = (self.w, of, money(cents));
        self.connection.execute(&format!("UPDATE warehouse SET w_ytd = w_ytd + {amount} WHERE w_id = {w}"))?;
        let address = "street_1, {}_street_2, {}_city, {}_state, {}_zip, {}_name";
        let warehouse =
            self.one("warehouse", &format!("SELECT w_{} FROM warehouse WHERE w_id = {w}", address.replace("{}", "w")))?;
        self.connection
            .execute(&format!("UPDATE district SET d_ytd = d_ytd + {amount} WHERE d_w_id = {w} AND d_id = {d}"))?;
        let sql = format!("SELECT d_{} FROM district WHERE d_w_id = {w} AND d_id = {d}", address.replace("{}", "d"));
        let district = self.one("district", &sql)?;
        let c = self.customer(of, who)?.ok_or_else(|| missing("customer"))?;
        let key = format!("c_w_id = {c_w} AND c_d_id = {c_d} AND c_id = {c}");
        let customer = self.one(
            "customer",
            &format!(
                "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, \
                 c_credit_lim, c_discount, c_balance, c_since FROM customer WHERE {key} FOR UPDATE"
            ),
        )?;
        let mut data = String::new();
        if field(&customer, 9, "credit")? == "BC" {
            let old = self.one("customer", &format!("SELECT c_data FROM customer WHERE {key}"))?;
            let mut new = format!("{c} {c_d} {c_w} {d} {w} {amount} | {}", field(&old, 0, "data")?);
            new.truncate(500);
            data = format!(", c_data = '{new}'");
        }
        self.connection.execute(&format!(
            "UPDATE customer SET c_balance = c_balance - {amount}, c_ytd_payment = c_ytd_payment + {amount}, \
             c_payment_cnt = c_payment_cnt + 1{data} WHERE {key}"
        ))?;
        let note = format!("{}    {}", field(&warehouse, 5, "name")?, field(&district, 5, "name")?);
        self.connection.execute(&format!(
            "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
             VALUES ({c}, {c_d}, {c_w}, {d}, {w}, NOW(), {amount}, '{note}')"
        ))?;
        Ok(())
    }

    fn order_status(&mut self, d: u64, who: &Who) -> Result<(), Failure> {
        let w = self.w;
        let c = self.customer((w, d), who)?.ok_or_else(|| missing("customer"))?;
        self.one(
            "customer",
            &format!(
                "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
            ),
        )?;
        let order = self.one(
            "order",
            &format!(
                "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = {w} AND o_d_id = {d} AND o_c_id = {c} \
                 ORDER BY o_id DESC LIMIT 1"
            ),
        )?;
        let o = number(&order, 0, "order")?;
        self.connection.query(&format!(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {o}"
        ))?;
        Ok(())
    }

    fn delivery(&mut self, carrier: u64) -> Result<(), Failure> {
        let w = self.w;
        for d in 1..=DISTRICTS {
            let oldest = self.connection.query(&format!(
                "SELECT no_o_id FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} ORDER BY no_o_id LIMIT 1 FOR UPDATE"
            ))?;
            let Some(oldest) = oldest.first() else { continue };
            let o = number(oldest, 0, "new order")?;
            let of_order = format!("o_w_id = {w} AND o_d_id = {d} AND o_id = {o}");
            let of_lines = format!("ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {o}");
            self.connection
                .execute(&format!("DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {o}"))?;
            let order = self.one("order", &format!("SELECT o_c_id FROM orders WHERE {of_order}"))?;
            let c = number(&order, 0, "customer")?;
            self.connection.execute(&format!("UPDATE orders SET o_carrier_id = {carrier} WHERE {of_order}"))?;
            self.connection.execute(&format!("UPDATE order_line SET ol_delivery_d = NOW() WHERE {of_lines}"))?;
            let sum = self.one("lines", &format!("SELECT SUM(ol_amount) FROM order_line WHERE {of_lines}"))?;
            let sum = field(&sum, 0, "amount")?;
            self.connection.execute(&format!(
                "UPDATE customer SET c_balance = c_balance + {sum}, c_delivery_cnt = c_delivery_cnt + 1 \
                 WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
            ))?;
        }
        Ok(())
    }

    fn stock_level(&mut self, d: u64, below: u64) -> Result<(), Failure> {
        let w = self.w;
        let district =
            self.one("district", &format!("SELECT d_next_o_id FROM district WHERE d_w_id = {w} AND d_id = {d}"))?;
        let next = number(&district, 0, "order number")?;
        self.one(
            "stock",
            &format!(
                "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = {w} AND ol_d_id = {d} \
                 AND ol_o_id < {next} AND ol_o_id >= {} AND s_w_id = {w} AND s_i_id = ol_i_id AND s_quantity < {below}",
                next.saturating_sub(20)
            ),
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_goes_there_and_back() {
        assert_eq!([cents("12.34"), cents("0.05"), cents("x")], [Some(1234), Some(5), None]);
        assert_eq!(money(1205), "12.05");
    }
}
