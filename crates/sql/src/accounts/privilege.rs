//! Privileges: one bit each, in the order in which SHOW GRANTS names them.
//!
//! The bits are kept in the table of accounts: a number is never given to another privilege.

/// A set of privileges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Privileges(pub u64);

/// Name and number of each static privilege, in MySQL's order.
const STATIC: [(&str, u8); 30] = [
    ("SELECT", 0),
    ("INSERT", 1),
    ("UPDATE", 2),
    ("DELETE", 3),
    ("CREATE", 4),
    ("DROP", 5),
    ("RELOAD", 6),
    ("SHUTDOWN", 7),
    ("PROCESS", 8),
    ("FILE", 9),
    ("REFERENCES", 10),
    ("INDEX", 11),
    ("ALTER", 12),
    ("SHOW DATABASES", 13),
    ("SUPER", 14),
    ("CREATE TEMPORARY TABLES", 15),
    ("LOCK TABLES", 16),
    ("EXECUTE", 17),
    ("REPLICATION SLAVE", 18),
    ("REPLICATION CLIENT", 19),
    ("CREATE VIEW", 20),
    ("SHOW VIEW", 21),
    ("CREATE ROUTINE", 22),
    ("ALTER ROUTINE", 23),
    ("CREATE USER", 24),
    ("EVENT", 25),
    ("TRIGGER", 26),
    ("CREATE TABLESPACE", 27),
    ("CREATE ROLE", 28),
    ("DROP ROLE", 29),
];

/// Dynamic ones that mean something here.
const DYNAMIC: [(&str, u8); 7] = [
    ("APPLICATION_PASSWORD_ADMIN", 38),
    ("CONNECTION_ADMIN", 32),
    ("ROLE_ADMIN", 36),
    ("SET_ANY_DEFINER", 33),
    ("SYSTEM_USER", 34),
    ("SYSTEM_VARIABLES_ADMIN", 35),
    ("XA_RECOVER_ADMIN", 37),
];

const fn bit(number: u8) -> Privileges {
    Privileges(1 << number)
}

impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const SELECT: Privileges = bit(0);
    pub const INSERT: Privileges = bit(1);
    pub const UPDATE: Privileges = bit(2);
    pub const DELETE: Privileges = bit(3);
    pub const CREATE: Privileges = bit(4);
    pub const DROP: Privileges = bit(5);
    pub const RELOAD: Privileges = bit(6);
    pub const PROCESS: Privileges = bit(8);
    pub const FILE: Privileges = bit(9);
    pub const REFERENCES: Privileges = bit(10);
    pub const INDEX: Privileges = bit(11);
    pub const ALTER: Privileges = bit(12);
    pub const SHOW_DATABASES: Privileges = bit(13);
    pub const SUPER: Privileges = bit(14);
    pub const CREATE_TEMPORARY_TABLES: Privileges = bit(15);
    pub const LOCK_TABLES: Privileges = bit(16);
    pub const EXECUTE: Privileges = bit(17);
    pub const CREATE_VIEW: Privileges = bit(20);
    pub const SHOW_VIEW: Privileges = bit(21);
    pub const CREATE_ROUTINE: Privileges = bit(22);
    pub const ALTER_ROUTINE: Privileges = bit(23);
    pub const CREATE_USER: Privileges = bit(24);
    pub const CREATE_ROLE: Privileges = bit(28);
    pub const DROP_ROLE: Privileges = bit(29);
    pub const CONNECTION_ADMIN: Privileges = bit(32);
    pub const SET_ANY_DEFINER: Privileges = bit(33);
    pub const SYSTEM_USER: Privileges = bit(34);
    pub const SYSTEM_VARIABLES_ADMIN: Privileges = bit(35);
    pub const ROLE_ADMIN: Privileges = bit(36);
    pub const XA_RECOVER_ADMIN: Privileges = bit(37);
    pub const APPLICATION_PASSWORD_ADMIN: Privileges = bit(38);
    pub const EVENT: Privileges = bit(25);
    pub const TRIGGER: Privileges = bit(26);
    /// WITH GRANT OPTION: all that one has at that level may be given on.
    pub const GRANT_OPTION: Privileges = bit(63);

    /// What ALL means at each level.
    pub const GLOBAL: Privileges = Privileges(0x7f_3fff_ffff);
    /// What it meant before there were XA_RECOVER_ADMIN and APPLICATION_PASSWORD_ADMIN.
    const GLOBAL_BEFORE: Privileges = Privileges(0x1f_3fff_ffff);
    /// Beside the privileges of an account as it is kept: who has kept it knew of these two.
    const KEPT_SINCE: Privileges = bit(62);
    /// All but the dynamic ones.
    pub const ALL_STATIC: Privileges = Privileges(0x3fff_ffff);
    pub const ON_DATABASE: Privileges = Privileges(
        0b11_1111 // SELECT to DROP
            | 1 << 10
            | 1 << 11
            | 1 << 12
            | 0b111 << 15
            | 0b1111 << 20
            | 0b11 << 25,
    );
    pub const ON_TABLE: Privileges = Privileges(0b11_1111 | 1 << 10 | 1 << 11 | 1 << 12 | 0b11 << 20 | 1 << 26);

    pub const ON_COLUMN: Privileges = Privileges(0b111 | 1 << 10);

    pub const ON_ROUTINE: Privileges = Privileges(1 << 17 | 1 << 23);

    /// As the privileges of an account on everything are kept.
    pub const fn kept(self) -> u64 {
        self.union(Privileges::KEPT_SINCE).0
    }
    /// Whoever was granted all that there was has what has come since.
    pub const fn of_kept(bits: u64) -> Privileges {
        let kept = Privileges(bits);
        if kept.contains(Privileges::GLOBAL_BEFORE) && !kept.contains(Privileges::KEPT_SINCE) {
            return kept.union(Privileges::GLOBAL);
        }
        kept.without(Privileges::KEPT_SINCE)
    }

    pub const fn union(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }
    pub const fn without(self, other: Privileges) -> Privileges {
        Privileges(self.0 & !other.0)
    }
    pub const fn intersection(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }
    #[inline]
    pub const fn contains(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }
    pub const fn intersects(self, other: Privileges) -> bool {
        self.0 & other.0 != 0
    }

    /// The privilege of this name, of one or more words with a space between.
    pub fn named(name: &str) -> Option<Privileges> {
        let is = |(known, _): &&(&str, u8)| known.eq_ignore_ascii_case(name);
        STATIC.iter().chain(&DYNAMIC).find(is).map(|(_, number)| bit(*number))
    }
    pub fn is_dynamic(self) -> bool {
        self.0 & 0xffff_ffff == 0 && self.without(Privileges::GRANT_OPTION) != Privileges::NONE
    }
    /// Names of the static ones, in MySQL's order.
    pub fn names(self) -> Vec<&'static str> {
        STATIC.iter().filter(|(_, n)| self.contains(bit(*n))).map(|(name, _)| *name).collect()
    }
    pub fn dynamic_names(self) -> Vec<&'static str> {
        DYNAMIC.iter().filter(|(_, n)| self.contains(bit(*n))).map(|(name, _)| *name).collect()
    }
    /// The first of several, as errors name it.
    pub fn first_name(self) -> &'static str {
        self.names().first().or(self.dynamic_names().first()).copied().unwrap_or("GRANT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_their_privileges() {
        assert_eq!(Privileges::GLOBAL.names().len() + Privileges::GLOBAL.dynamic_names().len(), 37);
        assert_eq!(
            Privileges::ON_TABLE.names().join(","),
            "SELECT,INSERT,UPDATE,DELETE,CREATE,DROP,REFERENCES,INDEX,ALTER,CREATE VIEW,SHOW VIEW,TRIGGER"
        );
        assert_eq!(
            Privileges::ON_DATABASE.without(Privileges::ON_TABLE).names().join(","),
            "CREATE TEMPORARY TABLES,LOCK TABLES,EXECUTE,CREATE ROUTINE,ALTER ROUTINE,EVENT"
        );
        assert_eq!(Privileges::ON_COLUMN.names().join(","), "SELECT,INSERT,UPDATE,REFERENCES");
        assert!(!Privileges::GLOBAL.contains(Privileges::GRANT_OPTION));
        assert_eq!(Privileges::named("show databases"), Some(Privileges::SHOW_DATABASES));
        assert_eq!(Privileges::named("nonesuch"), None);
        assert!(Privileges::CONNECTION_ADMIN.is_dynamic() && !Privileges::SUPER.is_dynamic());
    }
}
