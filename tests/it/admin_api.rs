//! The admin API: what it tells and changes, who may, and the commands that go by it. The judge of its document is schemathesis.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::clients::client_program;
use crate::support::http::{self, Answer};
use crate::support::mirror::Mirror;
use crate::support::upstream::Upstream;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const PROBLEM: &str = "application/problem+json";

/// A site with two wheels, a policy folder, and a token for everything.
struct Site {
    folder: tempfile::TempDir,
    mirror: Mirror,
    admin: String,
}

impl Site {
    fn new(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let wheels = folder.path().join("wheels");
        fs_err::create_dir_all(&wheels).unwrap();
        fs_err::create_dir_all(folder.path().join("policies")).unwrap();
        fs_err::write(folder.path().join("jetwheel.toml"), configuration).unwrap();
        let desktop = json!([{"path": "deskgpu/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.6",
            "fatbins": [{"images": ["sm_90"], "count": 2}]}]);
        make_wheels(
            &json!([
                {"filename": "demo-1.0-py3-none-any.whl"},
                {"filename": "deskgpu-1.0-cp310-cp310-linux_aarch64.whl", "elfs": desktop},
            ]),
            &wheels,
        );
        done(&run_in(&folder, &["add", wheels.to_str().unwrap()]));
        let made = done(&run_in(&folder, &["token", "create", "boss", "--scope", "admin"]));
        let config = folder.path().join("jetwheel.toml");
        let mirror =
            Mirror::serving_with(&folder.path().join("data"), &["--config".as_ref(), config.as_os_str()]);
        Self { folder, mirror, admin: made.trim().to_owned() }
    }

    /// An upstream with one wheel, of the project `far`.
    fn upstream(&self) -> Upstream {
        let far = self.path("far");
        fs_err::create_dir_all(&far).unwrap();
        make_wheels(&json!([{"filename": "far-1.0-py3-none-any.whl"}]), &far);
        Upstream::serving(&far)
    }

    fn with_policies() -> Self {
        Self::new("policies = \"policies\"\n[network]\nretries = 0\nconnect_timeout_s = 2\n")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command here, which runs inside the server.
    fn local(&self, arguments: &[&str]) -> Output {
        run_in(&self.folder, arguments)
    }

    /// The same command by the API, from a machine that has nothing but a token.
    fn remote(&self, arguments: &[&str]) -> Output {
        let mut command = jetwheel(&self.path("elsewhere"));
        command.env("JETWHEEL_TOKEN", &self.admin).env("HOME", self.path("elsewhere"));
        command.arg("--server").arg(self.mirror.url("/")).args(arguments).output().unwrap()
    }

    fn token(&self, name: &str, scope: &str) -> String {
        done(&self.local(&["token", "create", name, "--scope", scope])).trim().to_owned()
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("Authorization", bearer.as_str())];
        if token.is_empty() {
            headers.clear();
        }
        if body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        http::send(&self.mirror.url(""), method, &format!("/api/v1/{path}"), &headers, body.as_bytes())
    }

    /// What the admin gets, which has to be that status.
    fn admin(&self, method: &str, path: &str, body: Option<Value>, status: u16) -> Value {
        let answer = self.ask(&self.admin, method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        let kind = if status < 400 { "application/json" } else { PROBLEM };
        assert_eq!(answer.header("content-type"), Some(kind), "{method} {path}");
        answer.json()
    }

    fn get(&self, path: &str) -> Value {
        self.admin("GET", path, None, 200)
    }

    /// Waits for the end of a job.
    fn ended(&self, job: &Value) -> Value {
        let begin = Instant::now();
        loop {
            let told = self.get(&format!("jobs/{}", job["id"].as_str().unwrap()));
            if told["state"] != "running" {
                return told;
            }
            assert!(begin.elapsed() < Duration::from_mins(1), "{told}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn run_in(folder: &tempfile::TempDir, arguments: &[&str]) -> Output {
    let mut command: Command = jetwheel(&folder.path().join("data"));
    command.arg("--config").arg(folder.path().join("jetwheel.toml"));
    command.args(arguments).output().unwrap()
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn reading_is_as_open_as_pages_are_and_changes_need_an_admin() {
    let site = Site::with_policies();
    let (reader, uploads) = (site.token("reader", "read"), site.token("uploads", "upload"));
    for path in ["openapi.json", "status", "devices", "projects", "projects/demo", "snapshots", "advisories"]
    {
        assert_eq!(site.ask("", "GET", path, None).status, 200, "{path}");
        let head = http::head(&site.mirror.url(""), &format!("/api/v1/{path}"), &[]);
        assert_eq!(head.status, 200, "{path}");
    }
    for (method, path) in [
        ("GET", "tokens"),
        ("GET", "audit"),
        ("POST", "snapshots"),
        ("POST", "channels/stable"),
        ("POST", "channels/stable/rollback"),
        ("POST", "advisories/x"),
        ("DELETE", "advisories/x"),
        ("POST", "tokens"),
        ("DELETE", "tokens/reader"),
        ("DELETE", "snapshots/candidate"),
        ("POST", "sync"),
    ] {
        let body = (method == "POST").then(|| json!({}));
        let nobody = site.ask("", method, path, body.clone());
        assert_eq!(nobody.status, 401, "{method} {path}");
        assert!(
            nobody.header("www-authenticate").is_some() && nobody.header("content-type") == Some(PROBLEM)
        );
        let problem = nobody.json();
        assert_eq!(
            (&problem["status"], &problem["title"]),
            (&json!(401), &json!("Unauthorized")),
            "{problem}"
        );
        for token in [&reader, &uploads] {
            let other = site.ask(token, method, path, body.clone());
            assert_eq!(other.status, 403, "{method} {path}");
            assert!(other.json()["detail"].as_str().unwrap().contains("needs admin"), "{}", other.text());
        }
    }
    let audit = site.get("audit");
    let who: Vec<&str> =
        audit["changes"].as_array().unwrap().iter().map(|change| change["who"].as_str().unwrap()).collect();
    assert!(who.iter().all(|who| who.starts_with("user:")), "nothing was changed: {audit}");

    let closed = Site::new("[access]\nread = \"token\"\n");
    assert_eq!(closed.ask("", "GET", "openapi.json", None).status, 200, "how to ask");
    assert_eq!(closed.ask("", "GET", "status", None).status, 401);
    let reader = closed.token("reader", "read");
    assert_eq!(closed.ask(&reader, "GET", "status", None).status, 200);
}

#[test]
fn a_device_that_needs_a_token_needs_it_here_too() {
    let site = Site::new("[access.devices]\n\"thor-*\" = \"token\"\n");
    let thor = "thor-jp7.0";
    assert_eq!(site.ask("", "GET", &format!("projects/demo?device={thor}"), None).status, 401);
    assert_eq!(site.ask("", "GET", &format!("projects/demo?device={ORIN}"), None).status, 200);
    let all = site.ask("", "GET", "projects/demo", None).json();
    let devices: Vec<&str> =
        all["devices"].as_array().unwrap().iter().map(|row| row["device"].as_str().unwrap()).collect();
    assert!(devices.contains(&ORIN) && !devices.iter().any(|id| id.starts_with("thor")), "{devices:?}");
}

#[test]
fn what_cannot_be_is_a_problem_in_words() {
    let site = Site::with_policies();
    let problem = |method: &str, path: &str, body: Option<Value>, status: u16| {
        let problem = site.admin(method, path, body, status);
        problem["detail"].as_str().unwrap().to_owned()
    };
    assert!(problem("GET", "nothing", None, 404).contains("no such page"));
    assert!(problem("GET", "projects/demoo", None, 404).contains("demo"));
    assert!(problem("GET", "projects/demo?device=orin-jp6.3", None, 404).contains(ORIN));
    assert!(problem("GET", "projects/demo?versions=~~1", None, 400).contains("versions"));
    assert!(problem("GET", "snapshots/x", None, 404).contains("\"x\""));
    assert!(problem("GET", "audit?last=-1", None, 400).contains("last"));
    assert!(problem("GET", "jobs/x", None, 404).contains("no such job"));
    assert!(problem("POST", "snapshots", Some(json!({"nam": "x"})), 400).contains("nam"));
    assert!(problem("POST", "snapshots", Some(json!({"name": "a/b"})), 400).contains("a/b"));
    assert!(problem("POST", "channels/other", Some(json!({})), 404).contains("candidate and stable"));
    assert!(problem("POST", "tokens", Some(json!({"name": "x", "scopes": []})), 400).contains("scope"));
    let boss = json!({"name": "boss", "scopes": ["read"]});
    assert!(problem("POST", "tokens", Some(boss), 409).contains("already"));
    assert!(problem("POST", "sync", Some(json!({"devices": [ORIN]})), 400).contains("nothing is asked for"));
    let nowhere = json!({"devices": ["orin"], "requirements": ["demo"]});
    assert!(problem("POST", "sync", Some(nowhere), 404).contains("orin-jp"));
    for (method, path) in
        [("DELETE", "status"), ("POST", "devices"), ("PUT", "advisories/x"), ("PATCH", "tokens")]
    {
        let answer = site.ask(&site.admin, method, path, None);
        assert_eq!(answer.status, 405, "{method} {path}");
        assert!(answer.header("allow").is_some());
    }
    let bearer = format!("Bearer {}", site.admin);
    let post = |headers: &[(&str, &str)], body: &[u8]| {
        let headers: Vec<(&str, &str)> =
            [("Authorization", bearer.as_str())].into_iter().chain(headers.iter().copied()).collect();
        http::send(&site.mirror.url(""), "POST", "/api/v1/snapshots", &headers, body).status
    };
    assert_eq!(post(&[("Content-Type", "text/plain")], b"{}"), 415, "as a form of another site sends it");
    assert_eq!(post(&[("Content-Type", "application/x-www-form-urlencoded")], b""), 415);
    assert_eq!(post(&[("Sec-Fetch-Site", "cross-site")], b"{}"), 403);
    assert_eq!(post(&[], &b"[".repeat(70_000)), 413);
    assert_eq!(post(&[], &b"[".repeat(60_000)), 400, "giant nesting");
}

#[test]
fn snapshots_are_made_compared_promoted_and_rolled_back() {
    let site = Site::with_policies();
    let first = site.get("snapshots")["channels"]["candidate"]["current"].clone();
    let made = site.admin("POST", "snapshots", Some(json!({"name": "before"})), 201);
    assert_eq!((&made["name"], &made["channels"]), (&json!("before"), &json!(["candidate"])));
    let files = site.get("snapshots/before")["files"].clone();
    assert_eq!(files.as_array().unwrap().len(), 2, "{files}");
    let moved = site.admin("POST", "channels/stable", Some(json!({"snapshot": first})), 200);
    assert_eq!((&moved["snapshot"], &moved["before"]), (&first, &Value::Null));
    let moved = site.admin("POST", "channels/stable", None, 200);
    assert_eq!((&moved["snapshot"], &moved["before"]), (&made["id"], &first));
    let page = http::get(&site.mirror.url(""), &format!("/{ORIN}@stable/simple/demo/"), &[]);
    assert_eq!(page.status, 200);
    let back = site.admin("POST", "channels/stable/rollback", None, 200);
    assert_eq!(back["snapshot"], first);
    site.admin("POST", "channels/stable/rollback", None, 409);
    site.admin("DELETE", "snapshots/stable", None, 409);
    assert_eq!(site.admin("DELETE", "snapshots/no-such", None, 404)["status"], 404);

    let advisory = json!({"project": "demo", "action": "refuse", "text": "hangs \"twice\"\n\u{7f}", "devices": ["orin-*"]});
    site.admin("POST", "advisories/demo-1", Some(advisory), 200);
    let diff = site.get(&format!("snapshots/before/diff/live?device={ORIN}"));
    assert_eq!(diff["verdicts"][0]["to"], "refuse", "{diff}");
    let lacking = json!({"require_reports": 1, "devices": [ORIN]});
    let lacking = site.admin("POST", "channels/stable", Some(lacking), 409);
    assert_eq!(
        (&lacking["kind"], &lacking["lacking"][0]["device"]),
        (&json!("too-few-reports"), &json!(ORIN))
    );
    // Of reports or not: a device that is not known is a mistake.
    site.admin("POST", "channels/stable", Some(json!({"devices": ["nowhere"]})), 404);

    let audit = site.get("audit?last=5");
    let did: Vec<(&str, &str)> = audit["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["who"].as_str().unwrap(), change["action"].as_str().unwrap()))
        .collect();
    let moved = ("token:boss", "snapshot channel");
    assert_eq!(
        did,
        [("token:boss", "snapshot create"), moved, moved, moved, ("token:boss", "advisory write")]
    );
}

#[test]
fn an_advisory_is_in_force_at_the_next_request_and_gone_again() {
    let site = Site::with_policies();
    let verdict = || site.get(&format!("projects/demo?device={ORIN}"))["devices"][0]["files"][0].clone();
    assert_eq!(verdict()["verdict"], "admit");
    let advisory = json!({"project": "demo", "versions": "<2", "action": "refuse", "text": "it hangs"});
    let written = site.admin("POST", "advisories/demo-1", Some(advisory), 200);
    assert_eq!(written["file"], "advisories/demo-1.toml");
    let refused = verdict();
    assert_eq!((&refused["verdict"], &refused["listed"]), (&json!("refuse"), &json!(false)));
    assert_eq!(refused["reasons"][0]["code"], "advisory");
    // The contract's own explanation says the same.
    let told = http::get(&site.mirror.url(""), &format!("/{ORIN}/explain/demo"), &[]).json();
    assert_eq!(told["files"][0]["verdict"], "refuse");
    let milder = json!({"project": "demo", "text": "it hangs at times"});
    site.admin("POST", "advisories/demo-1", Some(milder), 200);
    assert_eq!(verdict()["verdict"], "admit");
    site.admin("DELETE", "advisories/demo-1", None, 200);
    assert!(verdict()["notes"].as_array().unwrap().is_empty());
    site.admin("DELETE", "advisories/demo-1", None, 404);
    let builtin = site.get("advisories")["advisories"][0]["id"].as_str().unwrap().to_owned();
    site.admin("DELETE", &format!("advisories/{builtin}"), None, 409);
    site.admin("POST", "advisories/..%2e", Some(json!({})), 400);
    site.admin("POST", "advisories/a", Some(json!({"project": "demo"})), 400);

    let by_hand =
        "[[advisory]]\nid = \"one\"\nproject = \"demo\"\ntext = \"x\"\n".repeat(2).replacen("one", "two", 1);
    fs_err::create_dir_all(site.path("policies/advisories")).unwrap();
    fs_err::write(site.path("policies/advisories/ours.toml"), by_hand).unwrap();
    let beside = site.admin("DELETE", "advisories/one", None, 409);
    assert!(beside["detail"].as_str().unwrap().contains("ours.toml"), "{beside}");

    let without = Site::new("");
    let advisory = json!({"project": "demo", "text": "it hangs"});
    let nowhere = without.admin("POST", "advisories/a", Some(advisory), 409);
    assert!(nowhere["detail"].as_str().unwrap().contains("policies"), "{nowhere}");
}

#[test]
fn a_token_is_shown_once_and_taken_away() {
    let site = Site::with_policies();
    let asked = json!({"name": "ci", "scopes": ["upload"], "expires": "2099-01-01T00:00:00Z"});
    let told = site.admin("POST", "tokens", Some(asked), 201);
    let token = told["token"].as_str().unwrap();
    assert_eq!(site.ask(token, "GET", "tokens", None).status, 403);
    let listed = site.get("tokens");
    assert!(!listed.to_string().contains(token) && listed.to_string().contains("\"ci\""), "{listed}");
    assert_eq!(site.admin("DELETE", "tokens/ci", None, 200), json!({"revoked": "ci"}));
    assert_eq!(site.ask(token, "GET", "tokens", None).status, 401);
    let audit = fs_err::read_to_string(site.path("data/audit.jsonl")).unwrap();
    assert!(!audit.contains(token) && audit.contains("token revoke"), "{audit}");
}

#[test]
fn a_sync_is_a_job_that_tells_how_far_it_is() {
    let site = Site::with_policies();
    let upstream = site.upstream();
    let url = upstream.url("/simple/");
    let order = json!({"devices": [ORIN], "requirements": ["far"], "upstreams": [url]});
    let job = site.admin("POST", "sync", Some(order), 202);
    let told = site.ended(&job);
    assert_eq!((&told["state"], &told["result"]["code"]), (&json!("done"), &json!(0)), "{told}");
    assert_eq!(told["result"]["report"]["devices"][0]["packages"][0]["name"], "far", "{told}");
    assert!(told["lines"].to_string().contains("far-1.0-py3-none-any.whl"), "{told}");
    assert_eq!(told["next"].as_u64().unwrap(), told["lines"].as_array().unwrap().len() as u64);
    let rest = site.get(&format!("jobs/{}?from={}", job["id"].as_str().unwrap(), told["next"]));
    assert_eq!(rest["lines"], json!([]));
    let page = http::get(&site.mirror.url(""), &format!("/{ORIN}/simple/far/"), &[]);
    assert!(page.text().contains("far-1.0-py3-none-any.whl"));
    let audit = site.get("audit?last=1")["changes"][0].clone();
    assert_eq!((&audit["who"], &audit["action"]), (&json!("token:boss"), &json!("sync")));

    let none = json!({"devices": [ORIN], "requirements": ["no such"], "upstreams": [url]});
    let failed = site.ended(&site.admin("POST", "sync", Some(none), 202));
    assert_eq!((&failed["state"], &failed["result"]["code"]), (&json!("failed"), &json!(2)), "{failed}");
}

/// Each command on the mirror's machine, and by the API from elsewhere: the same words, the same JSON, the same exit code.
#[test]
fn commands_say_the_same_here_and_over_the_api() {
    let site = Site::with_policies();
    for arguments in [
        &["snapshot", "list"][..],
        &["snapshot", "show", "candidate"],
        &["snapshot", "show", "nothing"],
        &["snapshot", "diff", "candidate", "live", "--device", ORIN],
        &["snapshot", "rollback"],
        &["snapshot", "promote"],
        &["snapshot", "promote", "--require-reports", "2", "--device", ORIN],
        &["explain", "deskgpu", "--device", ORIN],
        &["explain", "demo>=2", "--device", ORIN],
        &["explain", "demo", "--device", "orin-jp6.2@candidate"],
        &["advisories"],
        &["advisories", "--device", "thor-jp7.0"],
        &["token", "revoke", "nobody"],
        &["token", "create", "a b", "--scope", "read"],
        &["audit"],
        &["audit", "--last", "1"],
    ] {
        for format in ["text", "json"] {
            let arguments = [arguments, &["--format", format]].concat();
            let [remote, local] = [site.remote(&arguments), site.local(&arguments)];
            let text = |bytes: &[u8]| {
                // When a channel was moved is another moment each time.
                let text = String::from_utf8_lossy(bytes).into_owned();
                text.lines().filter(|line| !line.contains("\"moved\"")).collect::<Vec<_>>().join("\n")
            };
            if arguments[0] == "audit" || arguments[1] == "promote" {
                assert!(
                    remote.status.code() == local.status.code() && !remote.stdout.is_empty(),
                    "{arguments:?} {remote:?}"
                );
            } else {
                assert_eq!(text(&remote.stdout), text(&local.stdout), "{arguments:?} {remote:?} {local:?}");
            }
            assert_eq!(remote.status.code(), local.status.code(), "{arguments:?} {remote:?} {local:?}");
        }
    }
    let unknown = ["explain", "demoo", "--device", ORIN];
    let [remote, local] = [site.remote(&unknown), site.local(&unknown)];
    assert_eq!((remote.status.code(), local.status.code()), (Some(1), Some(1)));
    assert!(String::from_utf8_lossy(&remote.stderr).contains("nearest known ones are demo"), "{remote:?}");

    done(&site.remote(&["snapshot", "create", "--name", "mine"]));
    assert!(done(&site.local(&["snapshot", "list"])).contains("mine"));
    assert_eq!(site.remote(&["snapshot", "remove", "mine"]).status.code(), Some(2), "candidate names it");
    done(&site.remote(&["snapshot", "create"]));
    assert!(done(&site.remote(&["snapshot", "remove", "mine"])).starts_with("removed "));
    let token = done(&site.remote(&["token", "create", "ci", "--scope", "read"]));
    assert_eq!(token.lines().count(), 1);
    assert!(done(&site.remote(&["token", "list"])).contains("ci"));
    done(&site.remote(&["token", "revoke", "ci"]));
}

#[test]
fn a_sync_over_the_api_answers_as_one_here() {
    let site = Site::with_policies();
    let upstream = site.upstream();
    let url = upstream.url("/simple/");
    fs_err::write(site.path("wanted.txt"), "far>=1 # as a file\n").unwrap();
    let wanted = site.path("wanted.txt");
    let arguments = ["sync", "--device", ORIN, "--upstream", &url, "-r", wanted.to_str().unwrap()];
    let first = site.remote(&arguments);
    let said = done(&first);
    assert!(
        String::from_utf8_lossy(&first.stderr).contains("fetching far-1.0-py3-none-any.whl"),
        "{first:?}"
    );
    assert!(said.contains("far"), "{said}");
    assert_eq!(done(&site.remote(&arguments)), done(&site.local(&arguments)));
    let json = |output: &Output| serde_json::from_str::<Value>(&done(output)).unwrap();
    let arguments = [&arguments[..], &["--format", "json"]].concat();
    assert_eq!(json(&site.remote(&arguments)), json(&site.local(&arguments)));
    let failed = site.remote(&["sync", "--device", "orin", "far"]);
    assert_eq!(failed.status.code(), Some(2), "{failed:?}");
}

#[test]
fn a_token_comes_from_a_file_the_environment_or_a_netrc_file_and_goes_into_no_message() {
    let site = Site::with_policies();
    let elsewhere = site.path("elsewhere");
    fs_err::create_dir_all(&elsewhere).unwrap();
    let command = |url: &str| {
        let mut command = jetwheel(&elsewhere);
        command.env("HOME", &elsewhere).env_remove("NETRC").arg("--server").arg(url).args(["token", "list"]);
        command
    };
    let url = site.mirror.url("");
    assert_eq!(command(&url).output().unwrap().status.code(), Some(2), "without any");
    fs_err::write(elsewhere.join("token"), format!("{}\n", site.admin)).unwrap();
    done(&command(&url).arg("--token-file").arg(elsewhere.join("token")).output().unwrap());
    done(&command(&url).env("JETWHEEL_TOKEN", &site.admin).output().unwrap());
    done(
        &command(&url.replacen("http://", &format!("http://__token__:{}@", site.admin), 1)).output().unwrap(),
    );
    fs_err::write(
        elsewhere.join("netrc"),
        format!("machine 127.0.0.1 login __token__ password {}\n", site.admin),
    )
    .unwrap();
    done(&command(&url).env("NETRC", elsewhere.join("netrc")).output().unwrap());
    let wrong = command(&url).env("JETWHEEL_TOKEN", "jetwheel_secret").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("not known here") && !said.contains("jetwheel_secret"), "{said}");
    let nobody = command("http://__token__:hush@127.0.0.1:1/").output().unwrap();
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(nobody.status.code() == Some(3) && !said.contains("hush"), "{said}");
    for verb in [&["verify"][..], &["serve"], &["add", "x"], &["resolve", "x", "--device", ORIN], &["gc"]] {
        let output = site.remote(verb);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("snapshot, explain"), "{verb:?}: {said}");
    }
}

/// Checks of schemathesis: what is served is what the document says, whatever is asked. The seed is fixed, the number of
/// examples bounded.
#[test]
fn schemathesis_finds_no_5xx_and_nothing_undocumented() {
    let site = Site::with_policies();
    site.admin("POST", "snapshots", Some(json!({"name": "named"})), 201);
    let judged = |phases: &[&str]| {
        let output = Command::new(client_program("schemathesis", "st"))
            .current_dir(site.folder.path())
            .arg("run")
            .arg(site.mirror.url("/api/v1/openapi.json"))
            .args(["--header", &format!("Authorization: Bearer {}", site.admin)])
            .args(["--seed", "20261130", "--max-examples", "25", "--workers", "1", "--request-timeout", "20"])
            .args(["--generation-database", "none", "--no-color", "--checks", CHECKS, "--phases"])
            .args(phases)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    };
    judged(&["examples,coverage,fuzzing"]);
    // One answer leads to the next request, and from the list of tokens to the end of the token that it all goes by.
    judged(&["stateful", "--exclude-path", "/api/v1/tokens/{name}"]);
    let samples = http::get(&site.mirror.url(""), "/metrics", &[]);
    let api: Vec<&str> = samples.text().lines().filter(|line| line.contains("route=\"api\"")).collect();
    assert!(api.len() > 5 && !api.iter().any(|line| line.contains("status=\"5")), "{api:#?}");
}

/// All but two: a request that fits the document may still name what is not there, and the token itself is what all go by.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,ignored_auth,unsupported_method,negative_data_rejection,\
                      allow_header_conformance,missing_required_header";
