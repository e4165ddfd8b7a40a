//! The opening conversation: greeting (protocol 10), the client's response, authentication switch, CHANGE_USER.

use super::{
    auth::{AuthPlugin, SCRAMBLE_BYTES, Scramble},
    compressed::Algorithms,
    constants::{CHARSET_UTF8MB4_0900, SERVER_VERSION, capability, status},
    cursor::Cursor,
    error::DecodeError,
    packet::PacketBuffer,
};

/// What a server may offer or not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offer {
    pub tls: bool,
    pub compression: Algorithms,
}

impl Offer {
    fn capabilities(self) -> u32 {
        let if_set = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        capability::SERVER
            | if_set(self.tls, capability::SSL)
            | if_set(self.compression.zlib, capability::COMPRESS)
            | if_set(self.compression.zstd, capability::ZSTD_COMPRESSION)
    }
}

/// Appends the greeting.
pub fn write_greeting(out: &mut PacketBuffer, connection: u32, scramble: &Scramble, plugin: AuthPlugin, offer: Offer) {
    let (first, second) = scramble.as_bytes().split_at(8);
    let [c0, c1, c2, c3] = offer.capabilities().to_le_bytes();
    let payload = out.begin();
    payload.push(10);
    payload.extend_from_slice(SERVER_VERSION.as_bytes());
    payload.push(0);
    payload.extend_from_slice(&connection.to_le_bytes());
    payload.extend_from_slice(first);
    payload.push(0);
    payload.extend_from_slice(&[c0, c1, CHARSET_UTF8MB4_0900]);
    payload.extend_from_slice(&status::AUTOCOMMIT.to_le_bytes());
    payload.extend_from_slice(&[c2, c3, SCRAMBLE_BYTES as u8 + 1]);
    payload.extend_from_slice(&[0; 10]);
    payload.extend_from_slice(second);
    payload.push(0);
    payload.extend_from_slice(plugin.name().as_bytes());
    payload.push(0);
    out.end();
}

/// Asks the client to answer with another plugin; its next packet is the bare response.
pub fn write_auth_switch(out: &mut PacketBuffer, plugin: AuthPlugin, scramble: &Scramble) {
    let payload = out.begin();
    payload.push(0xfe);
    payload.extend_from_slice(plugin.name().as_bytes());
    payload.push(0);
    payload.extend_from_slice(scramble.as_bytes());
    payload.push(0);
    out.end();
}

/// Tells a caching_sha2_password client that the fast check succeeded; OK follows.
pub fn write_fast_auth_success(out: &mut PacketBuffer) {
    out.begin().extend_from_slice(&[1, 3]);
    out.end();
}

/// Asks a caching_sha2_password client for its password itself: in clear where the connection is encrypted, otherwise for the server's public key.
pub fn write_full_auth_request(out: &mut PacketBuffer) {
    out.begin().extend_from_slice(&[1, 4]);
    out.end();
}

/// What a client without TLS asks for then.
pub const PUBLIC_KEY_REQUEST: &[u8] = &[2];

pub fn write_public_key(out: &mut PacketBuffer, pem: &str) {
    let payload = out.begin();
    payload.push(1);
    payload.extend_from_slice(pem.as_bytes());
    out.end();
}

/// What a client answered to the greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHello<'a> {
    /// The client goes on with TLS and logs in then.
    TlsRequest,
    Login(Login<'a>),
}

/// A login, from a handshake response or from CHANGE_USER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login<'a> {
    /// Capabilities both sides have.
    pub capabilities: u32,
    pub charset: u16,
    pub user: &'a [u8],
    pub auth_response: &'a [u8],
    pub database: Option<&'a [u8]>,
    /// The plugin `auth_response` was made with.
    pub plugin: &'a [u8],
    /// Undecoded connection attributes; see [`Attributes`].
    pub attributes: &'a [u8],
    pub compression: CompressionAsked,
}

/// What a client asks for besides packets as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompressionAsked {
    pub zlib: bool,
    pub zstd: bool,
    /// Of zstd; 0: none was named.
    pub level: u8,
}

/// Decodes the answer to the greeting.
pub fn decode_client_hello(payload: &[u8]) -> Result<ClientHello<'_>, DecodeError> {
    let mut cursor = Cursor::new(payload);
    let [c0, c1] = cursor.array()?;
    let low = u32::from(u16::from_le_bytes([c0, c1]));
    if low & capability::PROTOCOL_41 == 0 {
        return Err(DecodeError::new("client of the protocol before 4.1"));
    }
    let high = u32::from(cursor.u16()?) << 16;
    let asked = low | high;
    cursor.u32()?; // The client's own packet limit says nothing about what it sends.
    let charset = u16::from(cursor.u8()?);
    cursor.bytes(23)?;
    // The login that follows inside of TLS has the flag, too.
    if asked & capability::SSL != 0 && cursor.is_empty() {
        return Ok(ClientHello::TlsRequest);
    }
    let capabilities = asked & capability::SERVER;
    let user = cursor.until_zero()?;
    let auth_response = if capabilities & capability::PLUGIN_AUTH_LENENC_DATA != 0 {
        cursor.lenenc_bytes()?
    } else if capabilities & capability::SECURE_CONNECTION != 0 {
        let length = cursor.u8()?;
        cursor.bytes(usize::from(length))?
    } else {
        cursor.until_zero_or_end()
    };
    let database = (capabilities & capability::CONNECT_WITH_DB != 0).then(|| cursor.until_zero_or_end());
    let plugin = if capabilities & capability::PLUGIN_AUTH != 0 {
        cursor.until_zero_or_end()
    } else {
        AuthPlugin::NativePassword.name().as_bytes()
    };
    let attributes = decode_attributes(&mut cursor, capabilities)?;
    let database = database.filter(|name| !name.is_empty());
    let zstd = asked & capability::ZSTD_COMPRESSION != 0;
    let level = if zstd && !cursor.is_empty() { cursor.u8()? } else { 0 };
    let compression = CompressionAsked { zlib: asked & capability::COMPRESS != 0, zstd, level };
    Ok(ClientHello::Login(Login {
        capabilities,
        charset,
        user,
        auth_response,
        database,
        plugin,
        attributes,
        compression,
    }))
}

/// Decodes what follows the command byte of CHANGE_USER. `capabilities` are the connection's.
pub fn decode_change_user(payload: &[u8], capabilities: u32) -> Result<Login<'_>, DecodeError> {
    let mut cursor = Cursor::new(payload);
    let user = cursor.until_zero()?;
    let auth_response = if capabilities & capability::SECURE_CONNECTION != 0 {
        let length = cursor.u8()?;
        cursor.bytes(usize::from(length))?
    } else {
        cursor.until_zero()?
    };
    let database = Some(cursor.until_zero_or_end()).filter(|name| !name.is_empty());
    let charset = if cursor.is_empty() { u16::from(CHARSET_UTF8MB4_0900) } else { cursor.u16()? };
    let plugin = if capabilities & capability::PLUGIN_AUTH != 0 && !cursor.is_empty() {
        cursor.until_zero_or_end()
    } else {
        AuthPlugin::NativePassword.name().as_bytes()
    };
    let attributes = decode_attributes(&mut cursor, capabilities)?;
    let compression = CompressionAsked::default();
    Ok(Login { capabilities, charset, user, auth_response, database, plugin, attributes, compression })
}

fn decode_attributes<'a>(cursor: &mut Cursor<'a>, capabilities: u32) -> Result<&'a [u8], DecodeError> {
    if capabilities & capability::CONNECT_ATTRS == 0 || cursor.is_empty() {
        return Ok(&[]);
    }
    cursor.lenenc_bytes()
}

/// Connection attributes, one name and value at a time; ends silently where they stop making sense.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(Cursor<'a>);

impl<'a> Attributes<'a> {
    pub fn new(encoded: &'a [u8]) -> Attributes<'a> {
        Attributes(Cursor::new(encoded))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.lenenc_bytes().ok()?, self.0.lenenc_bytes().ok()?))
    }
}
