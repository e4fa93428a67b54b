//! A small HTTP server that runs the snippets of many clients at once, each in its own sandbox.
//!
//! ```text
//! cargo run --release --example embedded_server            # serves on 127.0.0.1:8080
//! curl --data-binary 'print(6 * 7)' http://127.0.0.1:8080/run
//! ```
//!
//! With `--self-test` it serves on a free port, sends itself 64 snippets from 16 clients, checks
//! that every reply belongs to its request, and exits.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use sandfork::{Admission, ErrorKind, Outcome, Sandbox};
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let self_test = std::env::args().any(|argument| argument == "--self-test");
    let processors = thread::available_parallelism()?;
    // Runs one snippet per processor and queues 64 more. Further requests get an answer that asks
    // the client to retry.
    let admission = Admission::new(processors, 64);
    let sandbox = Arc::new(Sandbox::builder().admission(&admission).build()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let port = if self_test { 0 } else { 8080 };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let app = Router::new().route("/run", post(run)).with_state(sandbox);
        println!("serving on http://{address}/run");
        let server = tokio::spawn(axum::serve(listener, app).into_future());
        if self_test {
            tokio::task::spawn_blocking(move || clients(address)).await??;
            server.abort();
            return Ok(());
        }
        Ok(server.await??)
    })
}

/// Every result of a guest is a reply; only a sandbox that cannot be provided is a server error.
async fn run(
    State(sandbox): State<Arc<Sandbox>>,
    code: Bytes,
) -> Result<Json<Outcome>, (StatusCode, String)> {
    // A run blocks its thread, so it gets a thread that may block.
    let outcome =
        tokio::task::spawn_blocking(move || sandbox.run(sandfork::Request::python(code.to_vec())));
    match outcome.await {
        Ok(Ok(outcome)) => Ok(Json(outcome)),
        Ok(Err(error)) if error.kind() == ErrorKind::Busy => {
            Err((StatusCode::TOO_MANY_REQUESTS, error.to_string()))
        }
        Ok(Err(error)) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

fn clients(server: SocketAddr) -> Result<(), Failure> {
    let clients: Vec<_> = (0..16_u32)
        .map(|client| {
            thread::spawn(move || {
                (0..4).try_for_each(|turn| {
                    let number = client * 4 + turn;
                    let answer = ask(server, &format!("print({number} * 1000003)"))?;
                    let expected = format!("\"stdout\":\"{}\\n\"", u64::from(number) * 1_000_003);
                    if answer.contains(&expected) {
                        return Ok(());
                    }
                    Err(Failure::from(format!(
                        "snippet {number} was answered {answer}"
                    )))
                })
            })
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    println!("64 snippets of 16 clients were answered");
    Ok(())
}

fn ask(server: SocketAddr, code: &str) -> Result<String, Failure> {
    let mut connection = TcpStream::connect(server)?;
    write!(
        connection,
        "POST /run HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{code}",
        code.len(),
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}
