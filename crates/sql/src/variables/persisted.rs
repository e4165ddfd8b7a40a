//! Values of system variables that SQL nodes begin with: what SET PERSIST, SET PERSIST_ONLY and RESET PERSIST ([`crate::admin::persist`]) keep.
//!
//! They are settings of the cluster: one row beside the accounts ([`crate::session::account_store`]), which every SQL node reads with the row that counts their changes. What the row says when a SQL node first reads it,
//! before it serves anybody, is put in force as SET GLOBAL would; later it is only shown, in `performance_schema.persisted_variables`. So SET PERSIST is in force at the SQL node that executes it,
//! as SET GLOBAL is, and at the others when they are started again.

use std::collections::BTreeMap;

/// Values by the names of their variables.
pub type Values = BTreeMap<String, String>;

/// As they are kept: names and values, each with a zero byte behind it.
pub fn written(values: &Values) -> Vec<u8> {
    let fields = values.iter().flat_map(|(name, value)| [name, value]);
    fields.flat_map(|field| field.bytes().chain([0])).collect()
}

pub fn read(bytes: &[u8]) -> Values {
    let mut fields = bytes.split(|b| *b == 0).map(|field| String::from_utf8_lossy(field).into_owned());
    let mut values = Values::new();
    while let (Some(name), Some(value)) = (fields.next().filter(|name| !name.is_empty()), fields.next()) {
        values.insert(name, value);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let values = Values::from([pair("sql_mode", ""), pair("max_connections", "7"), pair("init", "a\nb")]);
        assert_eq!(read(&written(&values)), values);
        assert_eq!(read(b""), Values::new());
        for bytes in [&b"\0\0\0"[..], b"a", b"\xff\0", b"a\0b"] {
            let _ = read(bytes);
        }
    }
}
