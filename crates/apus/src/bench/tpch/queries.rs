//! The 22 queries with the parameters of their validation (clause 2.4), in words that MySQL, MariaDB, DuckDB and Apus take alike.

use tpchgen::q_and_a::queries;

pub const COUNT: usize = 22;

/// What stands for `:1`, `:2`, ... in each query. `S` is 0.0001 over the scale.
const PARAMETERS: [&[&str]; COUNT] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", "S"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// Rows that a query is asked for at most.
const LIMITS: [(usize, u32); 5] = [(2, 100), (3, 10), (10, 20), (18, 100), (21, 100)];

/// Its view as a common table expression: nothing is created.
const Q15: &str = "with revenue (supplier_no, total_revenue) as (
	select l_suppkey, sum(l_extendedprice * (1 - l_discount))
	from lineitem
	where l_shipdate >= date ':1' and l_shipdate < date ':1' + interval '3' month
	group by l_suppkey
)
select s_suppkey, s_name, s_address, s_phone, total_revenue
from supplier, revenue
where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
order by s_suppkey";

/// Query `number`, 1 to 22.
pub fn query(number: usize, scale: f64) -> Option<String> {
    let parameters = PARAMETERS.get(number.checked_sub(1)?)?;
    let text = match number {
        15 => Q15,
        _ => queries::query(number as i32)?,
    };
    let mut text = text.trim().trim_end_matches(';').to_owned();
    match number {
        1 => text = text.replace("day (3)", "day"),
        // MariaDB has no names of columns behind a derived table.
        13 => {
            text =
                text.replace("count(o_orderkey)", "count(o_orderkey) as c_count").replace(" (c_custkey, c_count)", "")
        }
        _ => {}
    }
    for (at, parameter) in parameters.iter().enumerate().rev() {
        let value = if *parameter == "S" { format!("{:.10}", 0.0001 / scale) } else { (*parameter).to_owned() };
        text = text.replace(&format!(":{}", at + 1), &value);
    }
    if let Some((_, rows)) = LIMITS.iter().find(|(n, _)| *n == number) {
        text.push_str(&format!("\nlimit {rows}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_its_value() {
        for number in 1..=COUNT {
            let text = query(number, 1.0).expect("a query");
            assert!(!text.contains(':') && !text.contains(';'), "{text}");
            assert!(text.starts_with("select") || text.starts_with("with"), "{text}");
        }
        assert_eq!((query(0, 1.0), query(23, 1.0)), (None, None));
        assert!(query(16, 1.0).unwrap().contains("p_size in (49, 14, 23, 45, 19, 3, 36, 9)"));
        assert!(query(11, 0.01).unwrap().contains("* 0.0100000000"));
    }
}
