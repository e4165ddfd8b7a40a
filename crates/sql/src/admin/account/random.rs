//! IDENTIFIED BY RANDOM PASSWORD and SET PASSWORD ... TO RANDOM: passwords that the server makes up and tells once.
//!
//! A password is drawn from letters, digits and signs, each as likely as the other, until one has some of all four kinds: with 20 characters that is some 125 bits. Who executes the statement is told it as
//! a result; it is kept as any other password, so nobody can be told it again.

use crate::{
    accounts::AccountName,
    errors::{self, Result},
    parse::account::{Clause, Identified, Named, Spoken},
    server::Output,
    session::Session,
    wire::{ColumnDef, ColumnType, SqlError, column_flag},
};

const KINDS: [&[u8]; 4] =
    [b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789", b",.-+*;:_!%&/(){}[]<>"];

/// A password that was made up for an account.
pub struct Generated {
    pub name: AccountName,
    password: String,
}

/// A password of so many characters.
///
/// # Errors
/// The system has no entropy to give.
fn password(length: usize) -> Result<String> {
    let alphabet = KINDS.concat();
    let fair = 256 / alphabet.len() * alphabet.len();
    let mut random = [0u8; 256];
    loop {
        let mut drawn = Vec::with_capacity(length);
        while drawn.len() < length {
            getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
            let usable = random.iter().map(|b| usize::from(*b)).filter(|b| *b < fair);
            drawn.extend(usable.map(|b| alphabet[b % alphabet.len()]).take(length - drawn.len()));
        }
        if KINDS.iter().all(|kind| drawn.iter().any(|b| kind.contains(b))) {
            return Ok(drawn.into_iter().map(char::from).collect());
        }
    }
}

/// Makes up what a clause leaves to the server; `own`: the account of the session.
pub fn fill(clause: &mut Clause, own: &AccountName, length: usize) -> Result<Vec<Generated>> {
    let mut made = Vec::new();
    let mut make = |name: &Named, spoken: &mut Spoken| {
        if spoken.is_random {
            spoken.password = password(length)?;
            let name = name.clone().unwrap_or_else(|| own.clone());
            made.push(Generated { name, password: spoken.password.clone() });
        }
        Ok::<(), SqlError>(())
    };
    match clause {
        Clause::CreateUser { users, .. } | Clause::AlterUser { users, .. } => {
            for (name, identified) in users {
                if let Some(Identified::By(_, spoken)) = identified {
                    make(name, spoken)?;
                }
            }
        }
        Clause::SetPassword { user, password } => make(user, password)?,
        _ => {}
    }
    Ok(made)
}

/// Tells who asked for them.
pub fn answer(session: &mut Session, out: &mut Output<'_>, made: &[Generated]) {
    const NAMES: [(&str, u32); 3] = [("user", 96), ("host", 255), ("generated password", 255)];
    let text = |(name, length): &(&str, u32)| ColumnDef::expression((*name).to_owned(), ColumnType::VarString, *length);
    let mut defs: Vec<ColumnDef> = NAMES.iter().map(text).collect();
    let mut factor = ColumnDef::expression("auth_factor".to_owned(), ColumnType::LongLong, 20);
    factor.flags |= column_flag::UNSIGNED | column_flag::BINARY;
    factor.charset = 63;
    defs.push(factor);
    out.begin_rows(&defs);
    for one in made {
        out.row_start();
        [&one.name.user, &one.name.host, &one.password].into_iter().for_each(|cell| out.bytes(cell.as_bytes()));
        out.uint(1);
        out.row_end();
    }
    (session.env.row_count, session.env.found_rows) = (-1, made.len() as u64);
    out.end_rows(session.warning_count(), session.status());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::policy::{LENGTH_MAX, LENGTH_MIN};

    #[test]
    fn passwords_have_all_kinds() {
        for length in [LENGTH_MIN, 20, LENGTH_MAX] {
            let (one, other) = (password(length as usize).unwrap(), password(length as usize).unwrap());
            assert_eq!(one.len() as u64, length);
            assert!(KINDS.iter().all(|kind| one.bytes().any(|b| kind.contains(&b))), "{one}");
            assert_ne!(one, other);
        }
    }
}
