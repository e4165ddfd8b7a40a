//! Defaults that are dates, by `sql_mode`: a definition is refused whose columns would begin with what the session may not write.
//!
//! As in MySQL, a definition is looked at as a whole: ALTER TABLE is refused for the default of a column that it does not name. Without strict mode zeros take the place of a date that lacks its month or its day.

use apus_types::{Column, ColumnType, schema::DefaultValue};

use crate::{
    errors::{self, Result},
    expr::Env,
    value::{
        temporal::{self, Dates},
        zone::Zone,
    },
};

/// Whether a text is a date that only some columns take.
pub fn is_none(text: &str) -> bool {
    let read = temporal::read_datetime(text.as_bytes(), Zone::UTC, Dates::WRITTEN);
    read.is_some_and(|(c, _)| c != Default::default() && !temporal::is_valid(&c))
}

/// Looks at the default of a column that is being defined.
///
/// # Errors
/// 1067: it is none for this session.
pub fn check(env: &Env, column: &mut Column) -> Result<()> {
    let variables = &env.variables;
    let (is_timestamp, decimals) = match column.ty {
        ColumnType::Date => (false, None),
        ColumnType::DateTime { decimals } => (false, Some(decimals)),
        ColumnType::Timestamp { decimals } => (true, Some(decimals)),
        _ => return Ok(()),
    };
    let DefaultValue::Literal(text) = &mut column.default else { return Ok(()) };
    let Some((c, _)) = temporal::read_datetime(text.as_bytes(), env.zone(), Dates::WRITTEN) else { return Ok(()) };
    let dates = if is_timestamp { Dates::REAL } else { variables.dates_of_columns() };
    let is_taken = if c == Default::default() { !variables.no_zero_date } else { dates.have(&c) };
    if is_taken {
        return Ok(());
    }
    if variables.strict || !temporal::is_partial(&c) {
        return Err(errors::invalid_default(&column.name));
    }
    let mut zeros = Vec::new();
    match decimals {
        None => temporal::push_date(&mut zeros, &Default::default()),
        Some(decimals) => temporal::push_datetime(&mut zeros, &Default::default(), decimals),
    }
    *text = String::from_utf8_lossy(&zeros).into_owned();
    env.note(errors::out_of_range(&column.name, 1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::datum::Datum;

    fn checked(mode: &str, ty: ColumnType, default: &str) -> std::result::Result<(String, usize), u16> {
        let mut env = Env::new(String::new(), String::new(), 0, 0, Default::default());
        env.variables.set("sql_mode", Some(&Datum::text(mode))).unwrap();
        let mut column = Column { default: DefaultValue::Literal(default.into()), ..Column::new("c", ty) };
        check(&env, &mut column).map_err(|e| e.errno)?;
        let DefaultValue::Literal(text) = column.default else { panic!("it was one") };
        Ok((text, env.take_notes().len()))
    }

    #[test]
    fn defaults_are_what_the_mode_takes() {
        let (date, moment) = (ColumnType::Date, ColumnType::DateTime { decimals: 1 });
        let kept = |text: &str| Ok((text.to_owned(), 0));
        assert_eq!(checked("", date, "2024-00-10"), kept("2024-00-10"));
        assert_eq!(checked("STRICT_TRANS_TABLES,NO_ZERO_IN_DATE", date, "2024-00-10"), Err(1067));
        assert_eq!(checked("NO_ZERO_IN_DATE", moment, "2024-00-10"), Ok(("0000-00-00 00:00:00.0".into(), 1)));
        assert_eq!(checked("STRICT_TRANS_TABLES,NO_ZERO_DATE", date, "0000-00-00"), Err(1067));
        assert_eq!(checked("NO_ZERO_DATE", date, "0000-00-00"), Ok(("0000-00-00".into(), 1)));
        assert_eq!(checked("", date, "2024-02-31"), Err(1067));
        assert_eq!(checked("ALLOW_INVALID_DATES", date, "2024-02-31"), kept("2024-02-31"));
        let stamp = ColumnType::Timestamp { decimals: 0 };
        assert_eq!(checked("", stamp, "2024-00-10"), Ok(("0000-00-00 00:00:00".into(), 1)));
        assert_eq!(checked("ALLOW_INVALID_DATES", stamp, "2024-02-31"), Err(1067));
    }
}
