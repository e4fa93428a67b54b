//! Connects to a host: resolves its name once, checks each address, and connects only to checked addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::http::Endpoint;
use super::metered::Metered;
use super::network::Network;
use super::resolve::resolve;
use super::{STEP_TIMEOUT, Shared, locked};
use crate::address::{AddressClass, Reach};
use crate::control::Proxy;
use crate::host::Host;
use crate::refusal::{Failure, Refusal, Verdict};
use crate::rules::Access;

/// The delay between connection attempts to successive addresses (RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The maximum number of addresses of a host to which connections are attempted.
const MAX_ATTEMPTS: usize = 8;

/// The maximum number of addresses of a host that are checked. The owner of a name chooses how many addresses it has,
/// and each check costs system calls.
const MAX_CHECKED: usize = 64;

/// The maximum size in bytes of the response head of a proxy.
const MAX_RESPONSE_HEAD: usize = 16 * 1024;

/// The content of a connection, which decides whether a proxy forwards its requests or tunnels it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Carries {
    /// Cleartext HTTP requests.
    Http,
    /// Anything else.
    Other,
}

/// A connection to a host, or to the proxy that forwards requests to it.
#[derive(Debug)]
pub struct Dialled {
    /// The stream.
    pub stream: Metered,
    /// The proxy that forwards the requests, if the stream leads to a proxy.
    pub requests_to: Option<Proxy>,
}

/// The route to a host.
enum Route<'a> {
    /// Direct, to one of these addresses.
    Addresses(Vec<SocketAddr>),
    /// Through the policy's proxy, which resolves the name.
    Proxy(&'a Proxy),
}

/// Connects to a host that the rules allow. Records a failure in the ledger.
pub async fn dial(
    network: &Arc<Network>,
    endpoint: &Endpoint,
    access: &Access<'_>,
    carries: Carries,
) -> Result<Dialled, Verdict> {
    let result = async {
        let route =
            with_timeout(choose_route(network, endpoint, access), Failure::Resolver).await?;
        let (addresses, on_timeout) = match &route {
            Route::Addresses(addresses) => {
                let addresses = addresses.iter().map(SocketAddr::ip).collect();
                (addresses, Failure::Unreachable)
            }
            Route::Proxy(_) => (Vec::new(), Failure::Proxy),
        };
        let asked = network.ask(endpoint, addresses).await;
        asked.map_err(Verdict::Refused)?;
        with_timeout(connect(network, endpoint, route, carries), on_timeout).await
    };
    let result = result.await;
    result.map_err(|verdict| network.note(endpoint, None, verdict))
}

/// Applies the step timeout. A step that times out fails with `on_timeout`.
async fn with_timeout<T>(
    step: impl Future<Output = Result<T, Verdict>>,
    on_timeout: Failure,
) -> Result<T, Verdict> {
    let ended = timeout(STEP_TIMEOUT, step).await;
    ended.unwrap_or(Err(Verdict::Failed(on_timeout)))
}

/// Chooses the route to a host that the rules allow, once the rate limit permits another connection.
async fn choose_route<'a>(
    network: &'a Network,
    endpoint: &Endpoint,
    access: &Access<'_>,
) -> Result<Route<'a>, Verdict> {
    if network.bytes.left() == 0 {
        return Err(Verdict::Refused(Refusal::Bytes));
    }
    network.dials.acquire().await;
    let shared = &network.shared;
    if let (Some(proxy), Reach::Public) = (&shared.start.proxy, access.reach()) {
        return Ok(Route::Proxy(proxy));
    }
    let addresses = addresses_of(shared, &endpoint.host).await?;
    let allowed = allowed_addresses(addresses, access, class_of).await;
    let allowed = allowed.map_err(Verdict::Refused)?.into_iter();
    let addresses = allowed.map(|address| SocketAddr::new(address, endpoint.port));
    Ok(Route::Addresses(addresses.collect()))
}

/// Returns the addresses to which connections are attempted. Yields to other tasks after each check.
async fn allowed_addresses<F: Future<Output = AddressClass>>(
    addresses: Vec<IpAddr>,
    access: &Access<'_>,
    class_of: impl Fn(IpAddr) -> F,
) -> Result<Vec<IpAddr>, Refusal> {
    let mut allowed = Vec::new();
    let mut refused = None;
    for address in addresses.into_iter().take(MAX_CHECKED) {
        let class = class_of(address).await;
        if class.is_allowed(access.reach(), access.is_named_address()) {
            allowed.push(address);
        } else {
            refused = Some(Refusal::from(class));
        }
        if allowed.len() == MAX_ATTEMPTS {
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
    endpoint: &Endpoint,
    route: Route<'_>,
    carries: Carries,
) -> Result<Dialled, Verdict> {
    let shared = &network.shared;
    let (stream, address, requests_to) = match (route, carries) {
        (Route::Proxy(proxy), Carries::Http) => (
            connect_to_proxy(shared, proxy).await?,
            None,
            Some(proxy.clone()),
        ),
        (Route::Proxy(proxy), Carries::Other) => {
            (tunnel_through(shared, proxy, endpoint).await?, None, None)
        }
        (Route::Addresses(addresses), _) => {
            let stream = connect_first(addresses).await.ok_or(unreachable())?;
            let address = stream.peer_addr().map_err(|_| unreachable())?;
            (stream, Some(address.ip()), None)
        }
    };
    _ = stream.set_nodelay(true);
    let stream = Metered::new(stream, network, endpoint, address);
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
            resolved.map(interleave).map_err(Verdict::Failed)
        }
    }
}

/// Interleaves IPv4 and IPv6 addresses (RFC 8305, 4), so that a machine with only one of the two protocols finds usable
/// addresses among the first.
fn interleave(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut counts = [0; 2];
    let ranked = addresses.into_iter().map(|address| {
        let count = &mut counts[usize::from(address.is_ipv6())];
        *count += 1;
        (*count, address)
    });
    let mut ranked: Vec<_> = ranked.collect();
    // A stable sort keeps the order within each family.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, address)| address).collect()
}

/// Classifies an address. The address of one of this machine's interfaces has no special value; it is recognised by the
/// route, whose source address equals the destination.
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
        // Connecting a UDP socket sends nothing; it only looks up the route.
        if let Ok(socket) = UdpSocket::bind((any, 0)).await
            && socket.connect((address, 9)).await.is_ok()
            && socket.local_addr().is_ok_and(|own| own.ip() == address)
        {
            return AddressClass::Own;
        }
    }
    class
}

/// Returns the first connection that succeeds. Attempts start in order, each with a delay after the previous one.
async fn connect_first(addresses: Vec<SocketAddr>) -> Option<TcpStream> {
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
            () = sleep(ATTEMPT_DELAY), if !is_last => continue,
        };
        match joined {
            Some(Ok(Ok(stream))) => return Some(stream),
            None if is_last => return None,
            _ => {}
        }
    }
}

/// Connects to the proxy. The policy names the proxy, so its address may be private.
async fn connect_to_proxy(shared: &Shared, proxy: &Proxy) -> Result<TcpStream, Verdict> {
    let addresses = addresses_of(shared, &proxy.host).await?.into_iter();
    let addresses = addresses.map(|address| SocketAddr::new(address, proxy.port));
    let stream = connect_first(addresses.take(MAX_ATTEMPTS).collect()).await;
    stream.ok_or(Verdict::Failed(Failure::Proxy))
}

/// Opens a tunnel through the proxy (RFC 9110, 9.3.6), which also resolves the name.
async fn tunnel_through(
    shared: &Shared,
    proxy: &Proxy,
    endpoint: &Endpoint,
) -> Result<TcpStream, Verdict> {
    let mut stream = connect_to_proxy(shared, proxy).await?;
    let authorization = proxy.authorization.as_ref();
    let authorization = authorization.map(|value| format!("Proxy-Authorization: {value}\r\n"));
    let authorization = authorization.unwrap_or_default();
    let request = format!("CONNECT {endpoint} HTTP/1.1\r\nHost: {endpoint}\r\n{authorization}\r\n");
    let failed = |_| Verdict::Failed(Failure::Proxy);
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    // Read byte by byte: the bytes after the response head belong to the host.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_RESPONSE_HEAD {
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

    /// Returns the addresses of a large reply, consecutively numbered.
    fn many() -> Vec<IpAddr> {
        (0..6300)
            .map(|it| Ipv4Addr::from_bits(0x0101_0101 + it).into())
            .collect()
    }

    /// Runs `allowed_addresses` on many addresses, all of which but these are private. Also returns the number of
    /// checks.
    fn attempted(public: &[usize]) -> (Result<Vec<IpAddr>, Refusal>, usize) {
        let rules = Rules::of_hosts(&["a.example"]);
        let host = "a.example".parse().expect("a host");
        let access = rules.access(&host, 443).expect("the rules allow it");
        let addresses = many();
        let checked = Cell::new(0);
        let class_of = async |address| {
            checked.set(checked.get() + 1);
            if public.iter().any(|it| addresses[*it] == address) {
                AddressClass::Public
            } else {
                AddressClass::Private
            }
        };
        let attempted = run(allowed_addresses(addresses.clone(), &access, class_of));
        (attempted, checked.get())
    }

    #[test]
    fn only_the_first_addresses_are_checked() {
        let many = many();
        assert_eq!(attempted(&[]), (Err(Refusal::PrivateAddress), MAX_CHECKED));
        let (first, last, later) = (0, MAX_CHECKED - 1, MAX_CHECKED);
        let both = Ok(vec![many[first], many[last]]);
        assert_eq!(attempted(&[first, last, later]), (both, MAX_CHECKED));
        assert_eq!(attempted(&[later]).0, Err(Refusal::PrivateAddress));
        // Checking stops once there are enough addresses to try.
        let all: Vec<usize> = (2..many.len()).collect();
        let expected = Ok(many[2..2 + MAX_ATTEMPTS].to_vec());
        assert_eq!(attempted(&all), (expected, 2 + MAX_ATTEMPTS));
    }

    #[test]
    fn address_checks_yield_to_other_tasks() {
        let rules = Rules::of_hosts(&["a.example"]);
        let host = "a.example".parse().expect("a host");
        let access = rules.access(&host, 443).expect("the rules allow it");
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
                _ = allowed_addresses(many(), &access, class_of) => {}
                () = other => {}
            }
        });
        assert_eq!(turns.into_inner(), "ab".repeat(MAX_CHECKED));
    }
}
