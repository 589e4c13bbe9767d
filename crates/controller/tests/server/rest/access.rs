//! Authentication and authorization.

use serde_json::json;
use tapswitch_controller::{BindError, Config, RestConfig, Server, Verifier};

use super::client::{TokenFile, ask_as, ask_with, chmod, get, post, with_rest};
use crate::running::{Running, config};

#[tokio::test]
async fn roles_allow_what_they_say() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let status = async |token: &str, method: &str, path: &str| {
        ask_as(&server, token, (method, &format!("/api/v1{path}"))).await.status
    };
    for token in [&tokens.viewer, &tokens.operator, &tokens.admin] {
        assert_eq!(status(token, "GET", "/policies").await, 200);
    }
    assert_eq!(status(&tokens.viewer, "DELETE", "/policies/x").await, 403);
    assert_eq!(status(&tokens.operator, "DELETE", "/policies/x").await, 404);
    assert_eq!(status(&tokens.operator, "GET", "/audit").await, 403);
    assert_eq!(status(&tokens.admin, "GET", "/audit").await, 200);
    let me = ask_as(&server, &tokens.operator, ("GET", "/api/v1/me")).await.json();
    assert_eq!((&me["name"], &me["role"]), (&json!("operator"), &json!("operator")));
}

#[tokio::test]
async fn pages_of_others_read_nothing() {
    let server = Running::start(with_rest()).await;
    let ask = async |method: &str, path: &str, site: &str| {
        let path = format!("/api/v1{path}");
        ask_with(&server, (method, &path), &[("sec-fetch-site", site)], vec![]).await
    };
    for (method, path) in
        [("GET", "/openapi.json"), ("GET", "/audit/export"), ("DELETE", "/session")]
    {
        for site in ["cross-site", "same-site"] {
            let refusal = ask(method, path, site).await.refusal();
            assert_eq!(refusal, (403, "cross-site".to_owned()), "{path}");
        }
        for site in ["same-origin", "none"] {
            assert!(ask(method, path, site).await.status < 300, "{path}");
        }
    }
}

#[tokio::test]
async fn refused_attempts_are_on_record() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    assert_eq!(get(&server, "/api/v1/me").await.refusal(), (401, "no-token".to_owned()));
    let wrong = ask_as(&server, "tapswitch-00", ("GET", "/api/v1/me")).await;
    assert_eq!(wrong.refusal(), (401, "bad-token".to_owned()));
    assert_eq!(wrong.headers["www-authenticate"], "Bearer");
    ask_as(&server, &tokens.viewer, ("DELETE", "/api/v1/policies/x")).await;
    let records = ask_as(&server, &tokens.admin, ("GET", "/api/v1/audit")).await.json();
    let told = |index: usize| {
        let record = &records["items"][index];
        (record["what"].as_str().unwrap(), record["who"].as_str().unwrap())
    };
    assert_eq!(told(0), ("role.refused", "viewer"));
    assert_eq!(told(1), ("token.refused", "unknown"));
    assert_eq!(records["total"], 2, "who shows no token leaves no record");
    let text = records.to_string();
    assert!(!text.contains(&tokens.viewer) && !text.contains("tapswitch-00"), "{text}");
}

#[tokio::test]
async fn who_is_refused_again_and_again_does_not_fill_the_audit_log() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    for _ in 0..20 {
        let answer = ask_as(&server, &tokens.viewer, ("DELETE", "/api/v1/policies/x")).await;
        assert_eq!(answer.refusal(), (403, "role-too-low".to_owned()));
        ask_as(&server, "x", ("GET", "/api/v1/me")).await;
    }
    let records = ask_as(&server, &tokens.admin, ("GET", "/api/v1/audit?limit=100")).await.json();
    let count = |what: &str| {
        let records = records["items"].as_array().unwrap().iter();
        records.filter(|record| record["what"] == what).count()
    };
    assert_eq!((count("role.refused"), count("token.refused")), (10, 10), "of each kind");
}

#[tokio::test]
async fn a_deletion_that_is_refused_is_on_record() {
    let policy = tapswitch_control::TapPolicy::new("p", "3".parse().unwrap());
    let server = Running::start(Config { policies: vec![policy], ..with_rest() }).await;
    let delete = async |name: &str| {
        let path = format!("/api/v1/policies/{name}");
        ask_with(&server, ("DELETE", &path), &[], vec![]).await.refusal().1
    };
    assert_eq!(delete("p").await, "policy-configured");
    assert_eq!(delete("q").await, "unknown-policy");
    let records = get(&server, "/api/v1/audit").await.json();
    let told = |index: usize| {
        let record = &records["items"][index];
        let result = record["result"].as_str().unwrap();
        assert!(result.starts_with("refused: "), "{result}");
        assert_eq!((&record["what"], &record["who"]), (&json!("policy.delete"), &json!("local")));
        (record["policy"]["name"].as_str(), result.to_owned())
    };
    let (none, unknown) = told(0);
    assert!(none.is_none() && unknown.contains("policy named q"), "{unknown}");
    assert_eq!(told(1).0, Some("p"));
    let begun = &records["items"][2];
    assert_eq!(
        (&begun["what"], &begun["who"], &begun["result"]),
        (&json!("policy.add"), &json!("configuration"), &json!("accepted"))
    );
    assert_eq!((&begun["policy"]["name"], &records["total"]), (&json!("p"), &json!(3)));
}

#[tokio::test]
async fn who_tries_tokens_is_limited_and_others_of_that_address_are_not() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    for _ in 0..10 {
        assert_eq!(ask_as(&server, "x", ("GET", "/api/v1/me")).await.status, 401);
    }
    let refused = (429, "too-many-attempts".to_owned());
    assert_eq!(ask_as(&server, "x", ("GET", "/api/v1/me")).await.refusal(), refused);
    assert_eq!(ask_as(&server, &tokens.admin, ("GET", "/api/v1/me")).await.status, 200);
    let sign_in =
        async |token: &str| post(&server, "/api/v1/session", &json!({ "token": token })).await;
    assert_eq!(sign_in(&tokens.operator).await.status, 204);
    assert_eq!(sign_in("x").await.refusal(), refused, "a valid token forgives no wrong ones");
}

#[tokio::test]
async fn a_session_lasts_until_it_is_ended_or_its_token_is_taken_away() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let sign_in =
        async || post(&server, "/api/v1/session", &json!({"token": tokens.operator})).await;
    let answer = sign_in().await;
    assert_eq!(answer.status, 204);
    let told = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(told.contains("; HttpOnly; SameSite=Strict; Max-Age=43200"), "{told}");
    let cookie = answer.cookie();
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        let headers = [&[("cookie", cookie.as_str())], headers].concat();
        ask_with(&server, (method, path), &headers, vec![]).await
    };
    assert_eq!(ask("GET", "/api/v1/me", &[]).await.json()["name"], "operator");
    let unmarked = ask("DELETE", "/api/v1/policies/x", &[]).await;
    assert_eq!(unmarked.refusal(), (403, "cross-site".to_owned()));
    let marked = ask("DELETE", "/api/v1/policies/x", &[("x-tapswitch", "1")]).await;
    assert_eq!(marked.refusal(), (404, "unknown-policy".to_owned()));
    assert_eq!(ask("DELETE", "/api/v1/session", &[]).await.status, 204);
    assert_eq!(ask("GET", "/api/v1/me", &[]).await.status, 401);

    let cookie = sign_in().await.cookie();
    std::fs::write(&tokens.path, "").unwrap();
    server.reloader.reload();
    let headers = [("cookie", cookie.as_str())];
    assert_eq!(ask_with(&server, ("GET", "/api/v1/me"), &headers, vec![]).await.status, 401);
    let wrong = post(&server, "/api/v1/session", &json!({"token": "x"})).await;
    assert_eq!(wrong.refusal(), (401, "bad-token".to_owned()));
}

#[tokio::test]
async fn pages_of_other_sites_change_nothing() {
    let server = Running::start(with_rest()).await;
    let refusal = async |method: &str, headers: &[(&str, &str)]| {
        ask_with(&server, (method, "/api/v1/policies/x"), headers, vec![]).await.refusal()
    };
    let foreign = [("origin", "http://example.org")];
    assert_eq!(refusal("DELETE", &foreign).await, (403, "cross-site".to_owned()));
    let rebound = [("host", "example.org:8653")];
    assert_eq!(refusal("GET", &rebound).await, (403, "unknown-host".to_owned()));
}

#[tokio::test]
async fn others_than_this_machine_need_tokens_and_tls() {
    let tokens = TokenFile::make();
    let bind = async |rest: RestConfig| {
        Server::bind(Config { rest: Some(rest), ..config() }).await.map(drop)
    };
    let open = RestConfig { listen: "0.0.0.0:0".parse().unwrap(), ..RestConfig::default() };
    let error = bind(open.clone()).await.unwrap_err();
    assert!(matches!(error, BindError::Unguarded { .. }), "{error}");
    let half = RestConfig { tokens: Some(tokens.path.clone()), ..open.clone() };
    assert!(matches!(bind(half).await.unwrap_err(), BindError::Unguarded { .. }));
    bind(RestConfig { is_insecure: true, ..open }).await.unwrap();
    chmod(&tokens.path, 0o644);
    let error = Server::bind(tokens.config()).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[tokio::test]
async fn the_audit_log_says_who_had_what_copied() {
    let tokens = TokenFile::make();
    let server = Running::start(tokens.config()).await;
    let bearer = format!("Bearer {}", tokens.operator);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let policy = json!({
        "name": "spy",
        "monitor": "3",
        "src-ip": "10.0.0.1",
        "direction": "both",
        "point": "ingress",
    });
    let request = ("POST", "/api/v1/policies");
    ask_with(&server, request, &headers, policy.to_string().into_bytes()).await;
    let export = ask_as(&server, &tokens.admin, ("GET", "/api/v1/audit/export")).await.text;
    let mut verifier = Verifier::default();
    export.lines().for_each(|line| verifier.check(line).unwrap());
    let records: Vec<serde_json::Value> =
        export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 2, "refused by the fabric, exported");
    assert_eq!((&records[0]["who"], &records[0]["policy"]), (&json!("operator"), &policy));
    let result = records[0]["result"].as_str().unwrap();
    assert!(result.starts_with("refused: monitor 3: no switch is connected"), "{result}");
    assert_eq!(
        (&records[1]["what"], &records[1]["who"]),
        (&json!("audit.export"), &json!("admin"))
    );
}
