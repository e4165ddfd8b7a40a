//! Numbers of the protocol: capabilities, status flags, column flags, character sets, limits.

/// What we call ourselves in the greeting and in `@@version`. Drivers parse the leading `8.4.x`.
pub const SERVER_VERSION: &str = "8.4.6-apus-0.1.0";

/// Payload bytes of one physical packet; a payload of exactly this size is followed by a continuation.
pub const PACKET_PAYLOAD_MAX: usize = 0xff_ffff;
/// Bytes before each physical packet: three of length, one of sequence.
pub const PACKET_HEADER_BYTES: usize = 4;
/// Default `max_allowed_packet`: the longest logical packet accepted from a client, in bytes.
pub const MAX_ALLOWED_PACKET_DEFAULT: usize = 64 << 20;

/// utf8mb4_general_ci: character columns.
pub const CHARSET_UTF8MB4: u16 = 45;
/// binary: numbers, dates and byte strings.
pub const CHARSET_BINARY: u16 = 63;
/// utf8mb4_0900_ai_ci, MySQL 8's default, which the greeting names.
pub const CHARSET_UTF8MB4_0900: u8 = 255;

/// Capability flags of the handshake.
pub mod capability {
    pub const LONG_PASSWORD: u32 = 1;
    /// The client wants found rather than changed rows in the affected count of UPDATE.
    pub const FOUND_ROWS: u32 = 1 << 1;
    pub const LONG_FLAG: u32 = 1 << 2;
    pub const CONNECT_WITH_DB: u32 = 1 << 3;
    pub const COMPRESS: u32 = 1 << 5;
    pub const ODBC: u32 = 1 << 6;
    pub const LOCAL_FILES: u32 = 1 << 7;
    pub const IGNORE_SPACE: u32 = 1 << 8;
    pub const PROTOCOL_41: u32 = 1 << 9;
    pub const INTERACTIVE: u32 = 1 << 10;
    pub const SSL: u32 = 1 << 11;
    pub const TRANSACTIONS: u32 = 1 << 13;
    pub const SECURE_CONNECTION: u32 = 1 << 15;
    pub const MULTI_STATEMENTS: u32 = 1 << 16;
    pub const MULTI_RESULTS: u32 = 1 << 17;
    pub const PS_MULTI_RESULTS: u32 = 1 << 18;
    pub const PLUGIN_AUTH: u32 = 1 << 19;
    pub const CONNECT_ATTRS: u32 = 1 << 20;
    pub const PLUGIN_AUTH_LENENC_DATA: u32 = 1 << 21;
    /// `CAN_HANDLE_EXPIRED_PASSWORDS`.
    pub const EXPIRED_PASSWORDS: u32 = 1 << 22;
    pub const SESSION_TRACK: u32 = 1 << 23;
    pub const DEPRECATE_EOF: u32 = 1 << 24;
    pub const ZSTD_COMPRESSION: u32 = 1 << 26;
    pub const QUERY_ATTRIBUTES: u32 = 1 << 27;

    /// What this server always offers; TLS and compression as it is set.
    pub const SERVER: u32 = LONG_PASSWORD
        | FOUND_ROWS
        | LONG_FLAG
        | CONNECT_WITH_DB
        | ODBC
        | LOCAL_FILES
        | IGNORE_SPACE
        | PROTOCOL_41
        | INTERACTIVE
        | TRANSACTIONS
        | SECURE_CONNECTION
        | MULTI_STATEMENTS
        | MULTI_RESULTS
        | PS_MULTI_RESULTS
        | PLUGIN_AUTH
        | CONNECT_ATTRS
        | PLUGIN_AUTH_LENENC_DATA
        | EXPIRED_PASSWORDS
        | SESSION_TRACK
        | DEPRECATE_EOF
        | QUERY_ATTRIBUTES;
}

/// Server status flags, sent with each OK and EOF.
pub mod status {
    pub const IN_TRANS: u16 = 1;
    pub const AUTOCOMMIT: u16 = 2;
    pub const MORE_RESULTS_EXISTS: u16 = 8;
    pub const NO_GOOD_INDEX_USED: u16 = 16;
    pub const NO_INDEX_USED: u16 = 32;
    pub const CURSOR_EXISTS: u16 = 64;
    pub const LAST_ROW_SENT: u16 = 128;
    pub const DB_DROPPED: u16 = 256;
    pub const NO_BACKSLASH_ESCAPES: u16 = 512;
    pub const METADATA_CHANGED: u16 = 1024;
    pub const IN_TRANS_READONLY: u16 = 8192;
    pub const SESSION_STATE_CHANGED: u16 = 1 << 14;
}

/// Flags of COM_STMT_EXECUTE. Other cursors are not made; who asks for one gets all rows at once, as from MySQL.
pub mod execute_flag {
    pub const CURSOR_READ_ONLY: u8 = 1;
    /// The number of values is told of a statement without parameters, too: there may be attributes.
    pub const PARAMETER_COUNT: u8 = 8;
}

/// Flags of a column definition.
pub mod column_flag {
    pub const NOT_NULL: u16 = 1;
    pub const PRI_KEY: u16 = 2;
    pub const UNIQUE_KEY: u16 = 4;
    pub const MULTIPLE_KEY: u16 = 8;
    pub const BLOB: u16 = 16;
    pub const UNSIGNED: u16 = 32;
    pub const ZEROFILL: u16 = 64;
    pub const BINARY: u16 = 128;
    pub const ENUM: u16 = 256;
    pub const AUTO_INCREMENT: u16 = 512;
    pub const TIMESTAMP: u16 = 1024;
    pub const SET: u16 = 2048;
    pub const NO_DEFAULT_VALUE: u16 = 4096;
    pub const NUM: u16 = 32768;
}
