//! Queries the host's resolvers.
//!
//! Each query has a random id and its own socket, whose port the kernel chooses: an attacker who forges a reply must
//! guess both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::control::Resolution;
use crate::dns::{Answer, MAX_BYTES, RecordKind, answer, question};
use crate::refusal::Failure;

/// The timeout of one query. Three resolvers, as many as the C library uses, are tried twice within `STEP_TIMEOUT`.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of attempts for each resolver.
const ATTEMPTS: usize = 2;

/// Resolves a name. Returns IPv6 addresses first.
pub async fn resolve(resolution: &Resolution, name: &str) -> Result<Vec<IpAddr>, Failure> {
    if name == "localhost" || name.ends_with(".localhost") {
        return Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
    }
    let hosts = resolution.hosts.iter().filter(|(host, _)| host == name);
    let addresses: Vec<IpAddr> = hosts.map(|(_, address)| *address).collect();
    if !addresses.is_empty() {
        return Ok(addresses);
    }
    for _ in 0..ATTEMPTS {
        for server in &resolution.servers {
            let (ipv6, ipv4) = tokio::join!(
                query(*server, name, RecordKind::Aaaa),
                query(*server, name, RecordKind::A)
            );
            let addresses = match (ipv6, ipv4) {
                (Some(Answer::Addresses(ipv6)), Some(Answer::Addresses(ipv4))) => {
                    ipv6.into_iter().chain(ipv4).collect()
                }
                // Some resolvers answer only one kind of query.
                (_, Some(Answer::Addresses(one))) | (Some(Answer::Addresses(one)), _)
                    if !one.is_empty() =>
                {
                    one
                }
                (Some(Answer::NoName), _) | (_, Some(Answer::NoName)) => Vec::new(),
                _ => continue,
            };
            return if addresses.is_empty() {
                Err(Failure::Unresolved)
            } else {
                Ok(addresses)
            };
        }
    }
    Err(Failure::Resolver)
}

/// Queries one resolver. Returns `None` on timeout or error.
async fn query(server: SocketAddr, name: &str, kind: RecordKind) -> Option<Answer> {
    let mut id = [0; 2];
    SystemRandom::new().fill(&mut id).ok()?;
    let question = question(u16::from_be_bytes(id), name, kind)?;
    let answered = timeout(QUERY_TIMEOUT, query_udp(server, &question)).await;
    match answered.ok()?.ok()? {
        Answer::Truncated => timeout(QUERY_TIMEOUT, query_tcp(server, &question))
            .await
            .ok()?
            .ok(),
        answer => Some(answer),
    }
}

async fn query_udp(server: SocketAddr, question: &[u8]) -> std::io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = [0; MAX_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = answer(question, &buffer[..length]) {
            return Ok(answer);
        }
    }
}

async fn query_tcp(server: SocketAddr, question: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes(), question].concat())
        .await?;
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    let answer = answer(question, &message);
    answer.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}
