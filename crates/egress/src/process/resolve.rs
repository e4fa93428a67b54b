//! Asks the host's resolvers.
//!
//! Each question has a random number and a socket of its own, whose port the kernel chooses: an answer that did not
//! come from the resolver has to guess both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::control::Resolution;
use crate::dns::{Answer, MOST_BYTES, RecordKind, answer, question};
use crate::refusal::Failure;

/// How long one resolver may take. Three, as many as the C library asks, are asked twice before `PATIENCE` ends.
const WAIT: Duration = Duration::from_secs(2);

/// How often each resolver is asked.
const ATTEMPTS: usize = 2;

/// The addresses of a name, those of IPv6 first.
pub async fn resolve(resolution: &Resolution, name: &str) -> Result<Vec<IpAddr>, Failure> {
    if name == "localhost" || name.ends_with(".localhost") {
        return Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
    }
    let own = resolution.hosts.iter().filter(|(own, _)| own == name);
    let own: Vec<IpAddr> = own.map(|(_, address)| *address).collect();
    if !own.is_empty() {
        return Ok(own);
    }
    for _ in 0..ATTEMPTS {
        for server in &resolution.servers {
            let (ipv6, ipv4) = tokio::join!(
                ask(*server, name, RecordKind::Aaaa),
                ask(*server, name, RecordKind::A)
            );
            let addresses = match (ipv6, ipv4) {
                (Some(Answer::Addresses(ipv6)), Some(Answer::Addresses(ipv4))) => {
                    ipv6.into_iter().chain(ipv4).collect()
                }
                // Some resolvers answer questions of one kind only.
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

/// Asks one resolver. `None` if it does not answer in time.
async fn ask(server: SocketAddr, name: &str, kind: RecordKind) -> Option<Answer> {
    let mut id = [0; 2];
    SystemRandom::new().fill(&mut id).ok()?;
    let question = question(u16::from_be_bytes(id), name, kind)?;
    let answered = timeout(WAIT, over_udp(server, &question)).await;
    match answered.ok()?.ok()? {
        Answer::Truncated => timeout(WAIT, over_tcp(server, &question)).await.ok()?.ok(),
        answer => Some(answer),
    }
}

async fn over_udp(server: SocketAddr, question: &[u8]) -> std::io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = [0; MOST_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = answer(question, &buffer[..length]) {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &[u8]) -> std::io::Result<Answer> {
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
