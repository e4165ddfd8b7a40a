//! Commands of an authenticated client, decoded as views of the packet.

use super::{cursor::Cursor, error::DecodeError};

/// One command. Text is left as bytes: what it means is the engine's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    Quit,
    InitDb(&'a [u8]),
    Query(&'a [u8]),
    FieldList {
        table: &'a [u8],
        wildcard: &'a [u8],
    },
    Statistics,
    ProcessKill(u32),
    Ping,
    /// What follows the command byte; see [`super::handshake::decode_change_user`].
    ChangeUser(&'a [u8]),
    Prepare(&'a [u8]),
    Execute {
        statement: u32,
        /// Of [`super::constants::execute_flag`].
        flags: u8,
        /// NULL bitmap, types and values; see [`super::params::decode_params`].
        params: &'a [u8],
    },
    SendLongData {
        statement: u32,
        param: u16,
        data: &'a [u8],
    },
    CloseStatement(u32),
    ResetStatement(u32),
    /// The next rows of a statement's cursor.
    Fetch {
        statement: u32,
        rows: u32,
    },
    /// 0 turns multi-statements on, 1 off.
    SetOption(u16),
    ResetConnection,
    /// A command this server does not serve.
    Unknown(u8),
}

/// Command bytes.
pub mod code {
    pub const QUIT: u8 = 0x01;
    pub const INIT_DB: u8 = 0x02;
    pub const QUERY: u8 = 0x03;
    pub const FIELD_LIST: u8 = 0x04;
    pub const STATISTICS: u8 = 0x09;
    pub const PROCESS_KILL: u8 = 0x0c;
    pub const PING: u8 = 0x0e;
    pub const CHANGE_USER: u8 = 0x11;
    pub const STMT_PREPARE: u8 = 0x16;
    pub const STMT_EXECUTE: u8 = 0x17;
    pub const STMT_SEND_LONG_DATA: u8 = 0x18;
    pub const STMT_CLOSE: u8 = 0x19;
    pub const STMT_RESET: u8 = 0x1a;
    pub const SET_OPTION: u8 = 0x1b;
    pub const STMT_FETCH: u8 = 0x1c;
    pub const RESET_CONNECTION: u8 = 0x1f;
}

/// Decodes a command packet's payload.
#[inline]
pub fn decode_command(payload: &[u8]) -> Result<Command<'_>, DecodeError> {
    let Some((&code, body)) = payload.split_first() else { return Err(DecodeError::new("empty command")) };
    let mut cursor = Cursor::new(body);
    Ok(match code {
        code::STMT_EXECUTE => {
            let statement = cursor.u32()?;
            let flags = cursor.u8()?;
            cursor.u32()?; // Iteration count, always one.
            Command::Execute { statement, flags, params: cursor.rest() }
        }
        code::QUERY => Command::Query(body),
        code::STMT_PREPARE => Command::Prepare(body),
        code::STMT_CLOSE => Command::CloseStatement(cursor.u32()?),
        code::STMT_RESET => Command::ResetStatement(cursor.u32()?),
        code::STMT_FETCH => Command::Fetch { statement: cursor.u32()?, rows: cursor.u32()? },
        code::STMT_SEND_LONG_DATA => {
            let (statement, param) = (cursor.u32()?, cursor.u16()?);
            Command::SendLongData { statement, param, data: cursor.rest() }
        }
        code::PING => Command::Ping,
        code::QUIT => Command::Quit,
        code::INIT_DB => Command::InitDb(body),
        code::FIELD_LIST => {
            let table = cursor.until_zero_or_end();
            Command::FieldList { table, wildcard: cursor.until_zero_or_end() }
        }
        code::STATISTICS => Command::Statistics,
        code::PROCESS_KILL => Command::ProcessKill(cursor.u32()?),
        code::CHANGE_USER => Command::ChangeUser(body),
        code::SET_OPTION => Command::SetOption(cursor.u16()?),
        code::RESET_CONNECTION => Command::ResetConnection,
        other => Command::Unknown(other),
    })
}
