//! Upstreams that mean harm: answers by the byte, and links and redirects into the mirror's own machine.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::fatbin::{CHILD, own_peak, peak_of_child};
use crate::sync::{Site, said};

const ORIN: &str = "orin-jp6.2";
const WHEEL: &str = "demo-1.0-py3-none-any.whl";

/// A server that says what it is told to each request, by its target; and what it was asked for. Its thread ends with the process.
struct Talker {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Talker {
    fn new(talk: impl Fn(&mut TcpStream, &str) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, talk) = (Arc::clone(&asked), Arc::new(talk));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, talk) = (Arc::clone(&seen), Arc::clone(&talk));
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                    let target = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
                    seen.lock().unwrap().push(target.to_owned());
                    talk(&mut stream, target);
                });
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn page(stream: &mut TcpStream, links: &str) {
    let length = links.len();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
    let _gone = write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{links}");
}

/// A body by the byte, as long as somebody takes it.
fn trickle(stream: &mut TcpStream, kind: &str) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: 1000000\r\n\r\n");
    let mut piece = head.as_bytes();
    while stream.write_all(piece).is_ok() {
        piece = b" ";
        thread::sleep(Duration::from_millis(100));
    }
}

/// Runs a pass that fails; gives what it said.
fn fails(site: &Site, network: &str, upstream: &str, proxy: Option<&Talker>) -> String {
    fs_err::write(site.folder.path().join("config.toml"), format!("[network]\n{network}\nbackoff_ms = 1\n"))
        .unwrap();
    let mut command = site.command(&["--device", ORIN, "--upstream", upstream, "demo"]);
    if let Some(proxy) = proxy {
        command.env("HTTP_PROXY", format!("http://127.0.0.1:{}", proxy.port));
    }
    let output = command.output().unwrap();
    let said = said(&output);
    assert!(!output.status.success() && !said.contains("panic"), "{said}");
    said
}

#[test]
fn a_page_that_comes_by_the_byte_is_given_up() {
    let upstream = Talker::new(|stream, _| trickle(stream, "text/html"));
    let url = format!("http://127.0.0.1:{}/simple/", upstream.port);
    let said = fails(&Site::new(), "read_timeout_s = 2\nretries = 1", &url, None);
    assert!(said.contains("came too slowly"), "{said}");
}

#[test]
fn a_wheel_that_comes_by_the_byte_is_given_up() {
    let upstream = Talker::new(|stream, target| {
        if target == "/simple/demo/" {
            return page(stream, &format!("<a href=\"/f/{WHEEL}\">{WHEEL}</a>"));
        }
        trickle(stream, "application/zip");
    });
    let url = format!("http://127.0.0.1:{}/simple/", upstream.port);
    let said = fails(&Site::new(), "read_timeout_s = 5\nretries = 1", &url, None);
    assert!(said.contains(WHEEL) && said.contains("came too slowly"), "{said}");
}

/// The upstream is elsewhere, behind a proxy that sees everything that is asked for.
#[test]
fn an_upstream_elsewhere_leads_nowhere_inside() {
    for inside in
        ["http://127.0.0.1:9/x/", "http://169.254.169.254/latest/", "http://localhost:9/", "file:///etc/"]
    {
        let redirect = move |stream: &mut TcpStream| {
            let _gone = write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {inside}{WHEEL}\r\nContent-Length: 0\r\n\r\n"
            );
        };
        // The page itself leads there, or its links, or the files' redirects.
        let by_page = Talker::new(move |stream, _| redirect(stream));
        let by_link =
            Talker::new(move |stream, _| page(stream, &format!("<a href=\"{inside}{WHEEL}\">{WHEEL}</a>")));
        let by_file = Talker::new(move |stream, target| {
            if target.ends_with("/simple/demo/") {
                return page(stream, &format!("<a href=\"/f/{WHEEL}\">{WHEEL}</a>"));
            }
            redirect(stream);
        });
        for proxy in [&by_page, &by_link, &by_file] {
            let said = fails(&Site::new(), "retries = 0", "http://upstream.test/simple/", Some(proxy));
            let asked = proxy.asked();
            let elsewhere = |target: &String| target.starts_with("http://upstream.test/");
            assert!(!asked.is_empty() && asked.iter().all(elsewhere), "{inside}: {asked:?}: {said}");
        }
    }
}

/// What a page says beside its links takes no memory but its own: 18 MB here, which were 250 MB once.
#[test]
fn a_link_with_a_million_attributes_is_only_long() {
    if std::env::var_os(CHILD).is_none() {
        let peak = peak_of_child("upstream_hostile::a_link_with_a_million_attributes_is_only_long");
        assert!(peak < 128 << 10, "{peak} KiB");
        return;
    }
    let mut attributes = String::new();
    for number in 0..1_500_000 {
        write!(attributes, "a{number}=1 ").unwrap();
    }
    let text = format!("<a {attributes}href=\"/f/{WHEEL}\" href=\"/g/{WHEEL}\" data-yanked>x</a>");
    let parsed = jetwheel::simple::parse_html(&text);
    let [link] = &parsed.page.files[..] else { panic!("{:?}", parsed.page.files.len()) };
    assert_eq!((link.url.as_str(), link.yanked.as_deref()), ("/f/demo-1.0-py3-none-any.whl", Some("")));
    println!("{}", own_peak());
}
