//! Asking sentinels who the primary is.

use std::fmt;
use std::time::Duration;

use redis::{Value, cmd};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::StoreErrorKind;

use crate::connect::{Connector, Target, query};
use crate::failure::Failure;
use crate::url::Address;
use crate::wire::Wire;

/// How long a sentinel has to answer, connecting included.
const PATIENCE: Duration = Duration::from_millis(250);

/// Sentinels that watch a primary.
pub(crate) struct Sentinels {
    addresses: Vec<Address>,
    service: String,
    // For the sentinels themselves, whose login is another.
    connector: Connector,
}

impl Sentinels {
    pub(super) fn new(addresses: Vec<Address>, service: String, connector: Connector) -> Self {
        Self { addresses, service, connector }
    }

    /// Connects to the primary, and says where it is.
    ///
    /// During a fail-over sentinels may disagree, so whomever one of them names is tried, the one
    /// most of them name first. Whether it is a primary indeed is for the node to examine.
    pub(super) async fn connect(&self, connector: &Connector) -> Result<(Wire, Target), Failure> {
        let mut failure = None;
        for (address, _) in self.primaries().await? {
            let target = Target::Address(address);
            match connect_to_primary(connector, &target).await {
                Ok(connection) => return Ok((connection, target)),
                Err(error) => failure = Some(error.of(&target)),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::unavailable("no sentinel knows the primary")))
    }

    /// Whether most sentinels name another primary than the one at `known`, and that one can be
    /// reached and does not deny it.
    pub(super) async fn name_another(&self, known: &Target, connector: &Connector) -> bool {
        let named = self.primaries().await.ok().and_then(|named| named.into_iter().next());
        let Some((address, votes)) = named else { return false };
        let target = Target::Address(address);
        2 * votes > self.addresses.len()
            && target != *known
            && connect_to_primary(connector, &target).await.is_ok()
    }

    /// Whom the sentinels name, and how many of them, most often named first.
    async fn primaries(&self) -> Result<Vec<(Address, usize)>, Failure> {
        let mut asked = JoinSet::new();
        for address in &self.addresses {
            let (address, service) = (address.clone(), self.service.clone());
            let connector = self.connector.clone();
            asked.spawn(async move {
                let answer = timeout(PATIENCE, ask(&connector, &address, &service)).await;
                let answer = answer.unwrap_or_else(|_| Err(Failure::timeout()));
                answer.map_err(|failure| failure.of(&address))
            });
        }
        let mut named: Vec<(Address, usize)> = Vec::new();
        let mut failures: Vec<String> = Vec::new();
        while let Some(answer) = asked.join_next().await {
            match answer.unwrap_or_else(|error| Err(Failure::unavailable(error))) {
                Err(failure) => failures.push(failure.to_string()),
                Ok(address) => match named.iter_mut().find(|(known, _)| *known == address) {
                    Some((_, votes)) => *votes += 1,
                    None => named.push((address, 1)),
                },
            }
        }
        if named.is_empty() {
            // In one order, so that it reads the same each time.
            failures.sort_unstable();
            let reason = format!("no sentinel knows the primary: {}", failures.join("; "));
            return Err(Failure::unavailable(reason));
        }
        named.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        Ok(named)
    }
}

/// Connects to a server unless it says that it is a replica.
async fn connect_to_primary(connector: &Connector, target: &Target) -> Result<Wire, Failure> {
    let connection = connector.connect(target).await?;
    match query(&connection, &cmd("ROLE"), PATIENCE).await {
        Ok(Value::Array(parts)) if text(parts.first()).as_deref() == Some("slave") => {
            Err(Failure::new(StoreErrorKind::ReadOnly, "the sentinels name a replica"))
        }
        _ => Ok(connection),
    }
}

async fn ask(connector: &Connector, sentinel: &Address, service: &str) -> Result<Address, Failure> {
    let connection = connector.connect(&Target::Address(sentinel.clone())).await?;
    let mut command = cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(service);
    let reply = query(&connection, &command, PATIENCE).await?;
    let unknown = || Failure::unavailable(format!("it does not know the service {service:?}"));
    let Value::Array(parts) = reply else {
        return Err(unknown());
    };
    let port = text(parts.get(1)).and_then(|port| port.parse().ok());
    let (host, port) = text(parts.first()).zip(port).ok_or_else(unknown)?;
    Ok(Address { host, port })
}

fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the primary of {:?}", self.service)
    }
}
