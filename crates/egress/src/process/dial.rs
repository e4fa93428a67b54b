//! Connects to a host: resolves its name once, judges each address, and dials one of those that were judged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::http::Place;
use super::metered::Metered;
use super::network::Network;
use super::resolve::resolve;
use super::{PATIENCE, Shared, locked};
use crate::address::{AddressClass, Reach};
use crate::control::Proxy;
use crate::host::Host;
use crate::refusal::{Failure, Refusal, Verdict};
use crate::rules::Access;

/// How long an address is the only one that is tried (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// The most addresses of a host that are tried.
const MOST_ADDRESSES: usize = 8;

/// The most addresses of a host that are judged. Its owner chooses how many it has, and each costs system calls.
const MOST_JUDGED: usize = 64;

/// The most bytes of a proxy's answer.
const MOST_OF_ANSWER: usize = 16 * 1024;

/// What a connection carries, for a proxy that tells the two apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Carries {
    /// Requests of HTTP in the clear.
    Http,
    /// Anything else.
    Other,
}

/// A connection to a host, or to the proxy that the request goes to.
#[derive(Debug)]
pub struct Dialled {
    /// The stream.
    pub stream: Metered,
    /// The proxy that takes requests for the host.
    pub requests_to: Option<Proxy>,
}

/// How a host is reached.
enum Route<'a> {
    /// By these addresses.
    Addresses(Vec<SocketAddr>),
    /// By the policy's proxy, which resolves the name.
    Proxy(&'a Proxy),
}

/// Connects to a host that the rules allow. What does not come about is noted.
pub async fn dial(
    network: &Arc<Network>,
    place: &Place,
    access: &Access<'_>,
    carries: Carries,
) -> Result<Dialled, Verdict> {
    let result = async {
        let route = within(route(network, place, access), Failure::Resolver).await?;
        let (addresses, silent) = match &route {
            Route::Addresses(addresses) => {
                let addresses = addresses.iter().map(SocketAddr::ip).collect();
                (addresses, Failure::Unreachable)
            }
            Route::Proxy(_) => (Vec::new(), Failure::Proxy),
        };
        let asked = network.ask(place, addresses).await;
        asked.map_err(Verdict::Refused)?;
        within(connect(network, place, route, carries), silent).await
    };
    let result = result.await;
    result.map_err(|verdict| network.note(place, None, verdict))
}

/// Bounds the time of a step, whose end without a word is this failure.
async fn within<T>(
    step: impl Future<Output = Result<T, Verdict>>,
    silent: Failure,
) -> Result<T, Verdict> {
    let ended = timeout(PATIENCE, step).await;
    ended.unwrap_or(Err(Verdict::Failed(silent)))
}

/// The way to a host that the rules allow, once there is a turn for it.
async fn route<'a>(
    network: &'a Network,
    place: &Place,
    access: &Access<'_>,
) -> Result<Route<'a>, Verdict> {
    if network.bytes.left() == 0 {
        return Err(Verdict::Refused(Refusal::Bytes));
    }
    network.dials.turn().await;
    let shared = &network.shared;
    if let (Some(proxy), Reach::Public) = (&shared.start.proxy, access.reach()) {
        return Ok(Route::Proxy(proxy));
    }
    let addresses = addresses_of(shared, &place.host).await?;
    let allowed = allowed(addresses, access, class_of).await;
    let allowed = allowed.map_err(Verdict::Refused)?.into_iter();
    let addresses = allowed.map(|address| SocketAddr::new(address, place.port));
    Ok(Route::Addresses(addresses.collect()))
}

/// Those of a host's addresses that are tried. Others have a turn after each that is judged.
async fn allowed<F: Future<Output = AddressClass>>(
    addresses: Vec<IpAddr>,
    access: &Access<'_>,
    class_of: impl Fn(IpAddr) -> F,
) -> Result<Vec<IpAddr>, Refusal> {
    let mut allowed = Vec::new();
    let mut refused = None;
    for address in addresses.into_iter().take(MOST_JUDGED) {
        let class = class_of(address).await;
        if class.is_allowed(access.reach(), access.is_named_address()) {
            allowed.push(address);
        } else {
            refused = Some(Refusal::from(class));
        }
        if allowed.len() == MOST_ADDRESSES {
            break;
        }
        yield_now().await;
    }
    match refused {
        Some(refusal) if allowed.is_empty() => Err(refusal),
        _ => Ok(allowed),
    }
}

async fn connect(
    network: &Arc<Network>,
    place: &Place,
    route: Route<'_>,
    carries: Carries,
) -> Result<Dialled, Verdict> {
    let shared = &network.shared;
    let (stream, address, requests_to) = match (route, carries) {
        (Route::Proxy(proxy), Carries::Http) => {
            (to_proxy(shared, proxy).await?, None, Some(proxy.clone()))
        }
        (Route::Proxy(proxy), Carries::Other) => (through(shared, proxy, place).await?, None, None),
        (Route::Addresses(addresses), _) => {
            let stream = first_of(addresses).await.ok_or(unreachable())?;
            let address = stream.peer_addr().map_err(|_| unreachable())?;
            (stream, Some(address.ip()), None)
        }
    };
    _ = stream.set_nodelay(true);
    let stream = Metered::new(stream, network, place, address);
    Ok(Dialled {
        stream,
        requests_to,
    })
}

const fn unreachable() -> Verdict {
    Verdict::Failed(Failure::Unreachable)
}

async fn addresses_of(shared: &Shared, host: &Host) -> Result<Vec<IpAddr>, Verdict> {
    match host {
        Host::Address(address) => Ok(vec![*address]),
        Host::Name(name) => {
            let resolution = locked(&shared.resolution).clone();
            let resolved = resolve(&resolution, name).await;
            resolved.map(in_turns).map_err(Verdict::Failed)
        }
    }
}

/// Puts addresses of IPv4 and IPv6 in turns (RFC 8305, 4): a machine that has only one of the two finds some among the
/// first.
fn in_turns(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut counts = [0; 2];
    let counted = addresses.into_iter().map(|address| {
        let count = &mut counts[usize::from(address.is_ipv6())];
        *count += 1;
        (*count, address)
    });
    let mut counted: Vec<_> = counted.collect();
    // The order of those of one turn stays.
    counted.sort_by_key(|(turn, _)| *turn);
    counted.into_iter().map(|(_, address)| address).collect()
}

/// What lies behind an address. That of an interface of this machine looks like any other, but the kernel would reach
/// it from the same address.
async fn class_of(address: IpAddr) -> AddressClass {
    let class = AddressClass::of(address);
    if matches!(
        class,
        AddressClass::Public | AddressClass::Private | AddressClass::Unusable
    ) {
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Nothing is sent: this looks a route up.
        if let Ok(socket) = UdpSocket::bind((any, 0)).await
            && socket.connect((address, 9)).await.is_ok()
            && socket.local_addr().is_ok_and(|own| own.ip() == address)
        {
            return AddressClass::Own;
        }
    }
    class
}

/// The first of the addresses that answers. Each has a head start over the next.
async fn first_of(addresses: Vec<SocketAddr>) -> Option<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.into_iter();
    loop {
        let next = waiting.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            attempts.spawn(TcpStream::connect(address));
        }
        let joined = tokio::select! {
            joined = attempts.join_next() => joined,
            () = sleep(HEAD_START), if !is_last => continue,
        };
        match joined {
            Some(Ok(Ok(stream))) => return Some(stream),
            None if is_last => return None,
            _ => {}
        }
    }
}

/// A connection to the proxy. The policy names it, so its address may be private.
async fn to_proxy(shared: &Shared, proxy: &Proxy) -> Result<TcpStream, Verdict> {
    let addresses = addresses_of(shared, &proxy.host).await?.into_iter();
    let addresses = addresses.map(|address| SocketAddr::new(address, proxy.port));
    let stream = first_of(addresses.take(MOST_ADDRESSES).collect()).await;
    stream.ok_or(Verdict::Failed(Failure::Proxy))
}

/// A connection that the proxy makes (RFC 9110, 9.3.6). It resolves the name too.
async fn through(shared: &Shared, proxy: &Proxy, place: &Place) -> Result<TcpStream, Verdict> {
    let mut stream = to_proxy(shared, proxy).await?;
    let authorization = proxy.authorization.as_ref();
    let authorization = authorization.map(|value| format!("Proxy-Authorization: {value}\r\n"));
    let authorization = authorization.unwrap_or_default();
    let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{authorization}\r\n");
    let failed = |_| Verdict::Failed(Failure::Proxy);
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    // One byte at a time: what follows the answer is the host's.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MOST_OF_ANSWER {
            return Err(Verdict::Failed(Failure::Proxy));
        }
        answer.push(stream.read_u8().await.map_err(failed)?);
    }
    let is_success = answer.starts_with(b"HTTP/1.") && answer.get(8..10) == Some(b" 2");
    if is_success {
        Ok(stream)
    } else {
        Err(Verdict::Failed(Failure::Proxy))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::rules::Rules;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(work)
    }

    /// The addresses of an answer, numbered.
    fn many() -> Vec<IpAddr> {
        (0..6300)
            .map(|it| Ipv4Addr::from_bits(0x0101_0101 + it).into())
            .collect()
    }

    /// What is tried of many addresses, of which all but these are private, and how many were judged.
    fn tried(public: &[usize]) -> (Result<Vec<IpAddr>, Refusal>, usize) {
        let rules = Rules::of_hosts(&["a.example"]);
        let host = "a.example".parse().expect("a host");
        let access = rules.access(&host, 443).expect("it is allowed");
        let addresses = many();
        let judged = Cell::new(0);
        let class_of = async |address| {
            judged.set(judged.get() + 1);
            if public.iter().any(|it| addresses[*it] == address) {
                AddressClass::Public
            } else {
                AddressClass::Private
            }
        };
        let tried = run(allowed(addresses.clone(), &access, class_of));
        (tried, judged.get())
    }

    #[test]
    fn only_the_first_addresses_of_a_host_are_judged() {
        let many = many();
        assert_eq!(tried(&[]), (Err(Refusal::PrivateAddress), MOST_JUDGED));
        let (first, last, later) = (0, MOST_JUDGED - 1, MOST_JUDGED);
        let both = Ok(vec![many[first], many[last]]);
        assert_eq!(tried(&[first, last, later]), (both, MOST_JUDGED));
        assert_eq!(tried(&[later]).0, Err(Refusal::PrivateAddress));
        // No more than are tried.
        let all: Vec<usize> = (2..many.len()).collect();
        let expected = Ok(many[2..2 + MOST_ADDRESSES].to_vec());
        assert_eq!(tried(&all), (expected, 2 + MOST_ADDRESSES));
    }

    #[test]
    fn others_have_a_turn_between_two_addresses() {
        let rules = Rules::of_hosts(&["a.example"]);
        let host = "a.example".parse().expect("a host");
        let access = rules.access(&host, 443).expect("it is allowed");
        let turns = RefCell::new(String::new());
        let class_of = async |_| {
            turns.borrow_mut().push('a');
            AddressClass::Private
        };
        let other = async {
            loop {
                turns.borrow_mut().push('b');
                yield_now().await;
            }
        };
        run(async {
            tokio::select! {
                biased;
                _ = allowed(many(), &access, class_of) => {}
                () = other => {}
            }
        });
        assert_eq!(turns.into_inner(), "ab".repeat(MOST_JUDGED));
    }
}
