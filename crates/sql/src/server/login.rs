//! Logins: which account is meant, whether the client can prove it, and whether the account may be used now.
//!
//! A client of `caching_sha2_password` sends a short proof first, which can be checked where the process remembers the password. Otherwise it is asked for the password itself, within TLS
//! or encrypted by the server's RSA key. Who names an account that is not there is led the same way, at the same cost, to the same error.

use std::{sync::Arc, time::Instant};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use super::{
    Accounts, ConnectionInfo, Engine, Usage,
    connection::{Connection, Credentials, Gone},
    limits,
};
use crate::{
    accounts::{Account, Secret, password},
    wire::{
        SqlError,
        auth::{AuthPlugin, proves_native, proves_sha2},
        capability,
        handshake::{
            PUBLIC_KEY_REQUEST, decode_change_user, write_auth_switch, write_fast_auth_success,
            write_full_auth_request, write_public_key,
        },
        result::{ResultState, ResultWriter},
    },
};

/// A login, counted where failures may close the account. Whoever leaves when he has been shown that his short proof is wrong has failed, too.
struct Attempt {
    counted: Option<(Arc<Usage>, Arc<Account>)>,
    /// What the client has proved is the proof of another password.
    is_wrong: bool,
}

impl Attempt {
    /// # Errors
    /// 3955: the account is closed.
    fn end(mut self, is_right: bool, user: &str, host: &str) -> Result<bool, SqlError> {
        let Some((usage, account)) = self.counted.take() else { return Ok(is_right) };
        let counted = usage.attempt(&account.policy, is_right, Instant::now());
        counted.map(|()| is_right).map_err(|closed| closed.error(&account.policy, user, host))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some((usage, account)) = self.counted.take().filter(|_| self.is_wrong) {
            // There is nobody to be told.
            let _ = usage.attempt(&account.policy, false, Instant::now());
        }
    }
}

impl<E: Engine> Connection<E> {
    /// The packet of a CHANGE_USER is the one taken last; the current session stays open until the next one is.
    pub(super) async fn change_user<S>(&mut self, stream: &mut S) -> Result<E::Session, Gone>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let packet = self.input.last_packet();
        let body = self.input.payload(&packet).get(1..).unwrap_or_default();
        let login = decode_change_user(body, self.capabilities).map_err(SqlError::from);
        match login.and_then(|login| Credentials::copy(&login)) {
            Ok(credentials) => self.authenticate(stream, Credentials { is_change: true, ..credentials }).await,
            Err(error) => {
                self.last_words(stream, &error).await;
                Err(Gone)
            }
        }
    }

    /// Checks who it is, opens the session and answers OK; on failure the client is told and the connection ends.
    pub(super) async fn authenticate<S>(&mut self, stream: &mut S, credentials: Credentials) -> Result<E::Session, Gone>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let limit = self.shared.config.handshake_timeout;
        let is_sure = timeout(limit / limits::ACCOUNTS_SHARE, self.engine.check_accounts()).await.unwrap_or(false);
        let account = self.shared.accounts.current().matching(&credentials.user, &self.slot.host).cloned();
        let with_password = credentials.is_change || !matches!(credentials.response.as_slice(), [] | [0]);
        let mut attempt = self.attempt(account.as_ref());
        let proof = self.prove(stream, account.as_deref(), &credentials, &mut attempt).await?;
        let proof = proof.and_then(|is_right| attempt.end(is_right, &credentials.user, &self.slot.host));
        let proven = match proof {
            Ok(true) => account.ok_or_else(|| Accounts::denied(&credentials.user, &self.slot.host, with_password)),
            Ok(false) => Err(Accounts::denied(&credentials.user, &self.slot.host, with_password)),
            Err(error) => Err(error),
        };
        let usable = proven.and_then(|account| self.check_usable(&account, &credentials.user).map(|()| account));
        let opened = match usable {
            Ok(account) => {
                let info = ConnectionInfo {
                    id: self.slot.id,
                    user: credentials.user.clone(),
                    host: self.slot.host.clone(),
                    database: credentials.database,
                    charset: credentials.charset,
                    capabilities: credentials.capabilities,
                    attributes: credentials.attributes.clone(),
                    registry: self.slot.registry.clone(),
                    interrupt: self.slot.interrupt.clone(),
                    activity: self.slot.activity.clone(),
                    tls: self.tls.clone(),
                };
                let wait = limit / limits::OPEN_SHARE;
                let opened = timeout(wait, self.engine.open_as(info, account, is_sure)).await;
                opened.unwrap_or_else(|_| Err(SqlError::no_answer(wait)))
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok(mut session) => {
                self.engine.set_compression(&mut session, self.compression);
                self.slot.registry.set_user(self.slot.id, &credentials.user, &credentials.attributes);
                self.capabilities = credentials.capabilities;
                self.statements.clear();
                self.state = ResultState::new(credentials.capabilities);
                self.state.start_command(false, self.engine.status(&session));
                let mut out = ResultWriter::new(&mut self.output, &mut self.state);
                self.engine.tell_changes(&mut session, &mut out);
                out.ok(0, 0, 0, "");
                if self.flush(stream).await.is_err() {
                    self.engine.close(session).await;
                    return Err(Gone);
                }
                Ok(session)
            }
            Err(error) => {
                self.last_words(stream, &error).await;
                Err(Gone)
            }
        }
    }

    fn attempt(&self, account: Option<&Arc<Account>>) -> Attempt {
        let account = account.filter(|account| account.policy.counts_failures());
        let counted = account.map(|a| (self.shared.accounts.usage_of(a, Instant::now()), a.clone()));
        Attempt { counted, is_wrong: false }
    }

    /// # Errors
    /// 1045, 1226, 3118: it is who it says, and must not log in.
    fn check_usable(&self, account: &Arc<Account>, user: &str) -> Result<(), SqlError> {
        let host = &self.slot.host;
        if account.is_locked {
            let text = format!("Access denied for user '{user}'@'{host}'. Account is locked.");
            return Err(SqlError::new(3118, b"HY000", text));
        }
        if !account.requires.is_met_by(self.tls.as_ref()) {
            let asks = self.shared.config.tls.as_ref().is_some_and(|tls| tls.asks);
            if account.requires.needs_certificate() && !asks {
                return Err(Accounts::nobody_is_asked(user, host));
            }
            return Err(Accounts::denied(user, host, true));
        }
        let most = account.max_user_connections;
        if most > 0 {
            let mine = |id: u32, name: &str, host: &str| {
                name == user && id != self.slot.id && crate::accounts::host::matches(&account.name.host, host)
            };
            let open = self.slot.registry.list().iter().filter(|e| mine(e.id, &e.user, &e.host)).count();
            if open >= most as usize {
                let text =
                    format!("User '{user}' has exceeded the 'max_user_connections' resource (current value: {most})");
                return Err(SqlError::new(1226, b"42000", text));
            }
        }
        if account.policy.limits.are_none() {
            return Ok(());
        }
        let now = Instant::now();
        self.shared.accounts.usage_of(account, now).log_in(now)
    }

    /// Whether the client knows the account's password. `None`: there is no such account, which takes the same steps.
    async fn prove<S>(
        &mut self,
        stream: &mut S,
        account: Option<&Account>,
        login: &Credentials,
        attempt: &mut Attempt,
    ) -> Result<Result<bool, SqlError>, Gone>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let plugin = account.map_or(AuthPlugin::CachingSha2Password, |account| account.auth.plugin);
        let secret = account.map(|account| &account.auth.secret);
        let needs_none = match secret {
            Some(Secret::Empty) => true,
            Some(Secret::Configured(digest)) => digest.is_empty(),
            _ => false,
        };
        let is_nothing = |response: &[u8]| matches!(response, [] | [0]);
        if needs_none && is_nothing(&login.response) && login.plugin.is_some() {
            return Ok(Ok(true));
        }
        // libmysqlclient proves nothing in CHANGE_USER before it is asked to.
        let is_waiting = login.is_change && is_nothing(&login.response);
        let response = if login.plugin == Some(plugin) && !is_waiting {
            login.response.clone()
        } else if login.capabilities & capability::PLUGIN_AUTH != 0 {
            write_auth_switch(&mut self.output, plugin, &self.scramble);
            self.flush(stream).await?;
            let packet = self.receive(stream).await?;
            self.input.payload(&packet).to_vec()
        } else {
            let text = "Client does not support authentication protocol requested by server; consider upgrading";
            return Ok(Err(SqlError::new(1251, b"08004", text)));
        };
        if needs_none || is_nothing(&response) {
            return Ok(Ok(needs_none && is_nothing(&response)));
        }
        let secrets: Vec<&Secret> = account.into_iter().flat_map(Account::secrets).collect();
        match plugin {
            AuthPlugin::NativePassword => Ok(Ok(secrets.iter().any(|secret| match secret {
                Secret::Native(digest) => proves_native(digest, &self.scramble, &response),
                Secret::Configured(digest) => digest.verify(plugin, &self.scramble, &response),
                Secret::Empty | Secret::Sha2(_) => false,
            }))),
            AuthPlugin::CachingSha2Password => self.prove_sha2(stream, &secrets, &response, attempt).await.map(Ok),
        }
    }

    async fn prove_sha2<S>(
        &mut self,
        stream: &mut S,
        secrets: &[&Secret],
        response: &[u8],
        attempt: &mut Attempt,
    ) -> Result<bool, Gone>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shared = self.shared.clone();
        // `None`: nobody knows before the password is here.
        let mut proofs = secrets.iter().map(|secret| match secret {
            Secret::Sha2(text) => {
                shared.accounts.remembered(text).map(|digest| proves_sha2(&digest, &self.scramble, response))
            }
            Secret::Configured(digest) => {
                Some(digest.verify(AuthPlugin::CachingSha2Password, &self.scramble, response))
            }
            Secret::Empty | Secret::Native(_) => None,
        });
        let is_known = proofs.clone().any(|proof| proof == Some(true));
        attempt.is_wrong = !is_known && !secrets.is_empty() && proofs.all(|proof| proof == Some(false));
        if is_known {
            write_fast_auth_success(&mut self.output);
            return Ok(true);
        }
        let Some(clear) = self.ask_password(stream).await? else { return Ok(false) };
        let is_one = |secret: &&Secret| match secret {
            Secret::Sha2(text) => {
                let is_right = password::is_password(text, &clear);
                if is_right {
                    shared.accounts.remember(text, &clear);
                }
                is_right
            }
            Secret::Configured(digest) => {
                password::waste(&clear);
                digest.is(&clear)
            }
            Secret::Empty | Secret::Native(_) => {
                password::waste(&clear);
                false
            }
        };
        if secrets.is_empty() {
            password::waste(&clear);
        }
        Ok(secrets.iter().any(is_one))
    }

    /// The client's password, encrypted on its way; `None`: what came is none.
    async fn ask_password<S>(&mut self, stream: &mut S) -> Result<Option<Vec<u8>>, Gone>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        write_full_auth_request(&mut self.output);
        self.flush(stream).await?;
        let packet = self.receive(stream).await?;
        let mut sent = self.input.payload(&packet).to_vec();
        if self.tls.is_none() {
            let shared = self.shared.clone();
            let Some(rsa) = shared.accounts.rsa() else { return Ok(None) };
            if sent == PUBLIC_KEY_REQUEST {
                write_public_key(&mut self.output, &rsa.pem);
                self.flush(stream).await?;
                let packet = self.receive(stream).await?;
                sent = self.input.payload(&packet).to_vec();
            }
            let Some(masked) = rsa.decrypt(&sent) else { return Ok(None) };
            let mask = self.scramble.as_bytes().iter().cycle();
            sent = masked.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
        }
        // It ends with a zero.
        let clear = sent.strip_suffix(&[0]).map(<[u8]>::to_vec);
        Ok(clear.filter(|clear| clear.len() <= password::PASSWORD_BYTES_MAX))
    }
}
