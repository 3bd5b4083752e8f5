package secret

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestName(t *testing.T) {
	tests := []struct {
		secret bool
		names  string
	}{
		{true, `NCCL_MESH_KEY HF_TOKEN AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID db_password MYSQL_PWD SSHPASS DB_PASS PGPASSWORD PASSPHRASE
			KEY_PASSPHRASE api-key apiKey APIKey x-api-key privateKey SSH_PRIVATE_KEY PASSWORD2 DB_PASS_1 GITHUB_PAT SLURM_JWT REDIS_AUTH
			SLACK_WEBHOOK_URL slackWebhook HTTP_COOKIE API_KEY_BASE64 ACCESS_TOKENS PSK user_pw hftoken NPM_CONFIG__AUTH credentials
			GOOGLE_APPLICATION_CREDENTIALS token_secret PASSWORD_HASH`},
		{false, `PATH PWD OLDPWD NCCL_NET NCCL_IB_PKEY rkey lkey fifoRkey TOKENIZERS_PARALLELISM max_tokens num_batched_tokens eos_token
			token_ids prompt_tokens query_key_value key_cache cache_key public_key PASSWORD_FILE NCCL_MESH_KEY_FILE SSH_AUTH_SOCK
			XAUTHORITY forward_pass tests_pass BYPASS compass NCCL_ALGO_PAT passed passes keyboard author authority auth_required
			no-auth monkey turkey compatible patch secretary_name disable-cookies`},
	}
	for _, tt := range tests {
		for _, name := range strings.Fields(tt.names) {
			if got := Name(name); got != tt.secret {
				t.Errorf("Name(%q) = %v, want %v", name, got, tt.secret)
			}
		}
	}
}

// What is not secret in a line stays, so that it can be read. Each secret has hunter2 in it, so that none is in a result.
func TestRedact(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"assignment", "NCCL_MESH_KEY=hunter2 rest", "NCCL_MESH_KEY=(redacted) rest"},
		{"of a shell", "export MYSQL_PWD=hunter2; SSHPASS='hunter2 x' DB_PASS=\"hunter2 \\\" x\" NCCL_DEBUG=INFO", "export MYSQL_PWD=(redacted); SSHPASS='(redacted)' DB_PASS=\"(redacted)\" NCCL_DEBUG=INFO"},
		{"with marks", "DB_PASS=a,b;hunter2)x}y&z NCCL_ALGO=Ring", "DB_PASS=(redacted) NCCL_ALGO=Ring"},
		{"with quotes", "DB_PASS=a\"b hunter2\"c'd e'f NCCL_ALGO=Ring", "DB_PASS=(redacted) NCCL_ALGO=Ring"},
		{"with an equals sign", "API_KEY=aHVudGVyMg==hunter2== x", "API_KEY=(redacted) x"},
		{"with a colon", "PASSPHRASE=hunter2:hunter2 x", "PASSPHRASE=(redacted) x"},
		{"with blanks", "password = hunter2, user = me", "password = (redacted), user = me"},
		{"passphrase", "Passphrase: correct horse hunter2 staple", "Passphrase: (redacted)"},
		{"list", "mount -o username=me,password=hunter2,vers=3 //nas", "mount -o username=me,password=(redacted),vers=3 //nas"},
		{"operators", "TOKEN:=hunter2 TOKEN?=hunter2 token => hunter2, token += hunter2", "TOKEN:=(redacted) TOKEN?=(redacted) token => (redacted), token += (redacted)"},
		{"subscript", `os.environ["HF_TOKEN"] = 'hunter2'`, `os.environ["HF_TOKEN"] = '(redacted)'`},
		{"map of Go", "map[DB_PASS:hunter2 NCCL_DEBUG:INFO]", "map[DB_PASS:(redacted) NCCL_DEBUG:INFO]"},
		{"struct of Go", "{User:me Password:hunter2 Port:22}", "{User:me Password:(redacted) Port:22}"},
		{"tuple", "requests.get(url, auth=('me', 'hunter2'), timeout=5)", "requests.get(url, auth=((redacted)), timeout=5)"},
		{"YAML", "hf_token: hunter2\nport: 22", "hf_token: (redacted)\nport: 22"},
		{"JSON", `{"auth_token": "hunter2", "n": 1}`, `{"auth_token": "(redacted)", "n": 1}`},
		{"JSON number", `{"token": 1700, "n": 1}`, `{"token": "(redacted)", "n": 1}`},
		{"JSON list", `{"api_keys": ["hunter2", "hunter2]"], "n": 1}`, `{"api_keys": ["(redacted)"], "n": 1}`},
		{"JSON in JSON", `{"env": "HF_TOKEN=\"hunter2 y\"", "n": 1}`, `{"env": "HF_TOKEN=\"(redacted)\"", "n": 1}`},
		{"JSON in JSON, bare", `{"env": "HF_TOKEN=hunter2\nA=1", "n": 1}`, `{"env": "HF_TOKEN=(redacted)\nA=1", "n": 1}`},
		{"word of a sentence", "DB_PASS=wrong password: 'wrong' password: wrong", "DB_PASS=(redacted) password: '(redacted)' password: wrong"},
		{"argument with a type", "def f(password: str = 'hunter2', n: int = 1)", "def f(password: str = '(redacted)', n: int = 1)"},
		{"quotes in quotes", `sh -c "prog DB_PASS="hunter2 x" A=b"`, `sh -c "prog DB_PASS="(redacted)" A=b"`},
		{"name that ends a string", `x = "DB_PASS=" + y, "hunter"`, `x = "DB_PASS=" + y, "hunter"`},
		{"JSON in JSON in JSON", `{"a": "{\"b\": \"{\\\"token\\\": \\\"hunter2\\\"}\"}", "n": 1}`, `{"a": "{\"b\": \"{\\\"token\\\": \\\"(redacted)\\\"}\"}", "n": 1}`},
		{"environment of a container", `{"Env": ["DB_PASS=hunter2", "A=b"]}`, `{"Env": ["DB_PASS=(redacted)", "A=b"]}`},
		{"name and value", `{"name": "DB_PASS", "value": "hunter2"}, {"name": "A", "value": "b"}`, `{"name": "DB_PASS", "value": "(redacted)"}, {"name": "A", "value": "b"}`},
		{"name and value in YAML", "- name: DB_PASS\n  value: hunter2\n- name: A\n  value: b", "- name: DB_PASS\n  value: (redacted)\n- name: A\n  value: b"},
		{"element of XML", `<password type="x">hunter2 y</password>`, `<password type="x">(redacted)</password>`},
		{"quotes of Python", `{'password': 'hunter2', 'token': b'hunter2', 'n': None}`, `{'password': '(redacted)', 'token': b'(redacted)', 'n': None}`},

		{"Authorization", "Authorization: Token hunter2", "Authorization: (redacted)"},
		{"Authorization, Bearer", "> authorization: Bearer hunter2.x\n> accept: */*", "> authorization: (redacted)\n> accept: */*"},
		{"Authorization, Digest", `Authorization: Digest username="me", response="hunter2"`, `Authorization: (redacted)`},
		{"Authorization, AWS", "Authorization: AWS4-HMAC-SHA256 Credential=hunter2/x, SignedHeaders=host, Signature=hunter2", "Authorization: (redacted)"},
		{"Authorization of a proxy", "Proxy-Authorization: Basic bWU6aHVudGVyMg==", "Proxy-Authorization: (redacted)"},
		{"Authorization in quotes", `curl -H "Authorization: Token hunter2" https://host/x`, `curl -H "Authorization: (redacted)" https://host/x`},
		{"Authorization in inner quotes", `{"cmd": "curl -H \"Authorization: Token hunter2\" https://host/x"}`, `{"cmd": "curl -H \"Authorization: (redacted)\" https://host/x"}`},
		{"Authorization in a map of Go", "map[Authorization:[Token hunter2] Host:[x]]", "map[Authorization:[(redacted)] Host:[x]]"},
		{"Authorization in JSON", `{"Authorization": "Token hunter2", "Host": "x"}`, `{"Authorization": "(redacted)", "Host": "x"}`},
		{"Authorization in a tuple", `[("authorization", "Token hunter2"), ("host", "x")]`, `[("authorization", "(redacted)"), ("host", "x")]`},
		{"cookies", "Cookie: a=b; session=hunter2; c=d\nHost: x", "Cookie: (redacted)\nHost: x"},
		{"cookies that are set", "Set-Cookie: a=hunter2; Path=/; HttpOnly", "Set-Cookie: (redacted)"},
		{"cookies in quotes", `curl -H 'Cookie: a=b; session=hunter2' https://host`, `curl -H 'Cookie: (redacted)' https://host`},
		{"cookies in a dict", `cookies={'a': 'b', 'session': 'hunter2'}, timeout=5`, `cookies={(redacted)}, timeout=5`},
		{"lines in a string", `b'GET / HTTP/1.1\r\nauthorization: Token hunter2\r\ncookie: a=b; c=hunter2\r\n'`, `b'GET / HTTP/1.1\r\nauthorization: (redacted)'`},
		{"commands in a string", `"ls\ncurl -u me:hunter2\nauth=hunter2"`, `"ls\ncurl -u (redacted)\nauth=(redacted)"`},
		{"colours", "\x1b[1;31mauth=hunter2", "\x1b[1;31mauth=(redacted)"},
		{"key in a header", "X-Api-Key: hunter2\nHost: x", "X-Api-Key: (redacted)\nHost: x"},
		{"scheme alone", "sent bearer abcdefghunter2 and Basic bWU6aHVudGVyMg==", "sent bearer (redacted) and Basic (redacted)"},

		{"option", "prog --password hunter2 --port 22", "prog --password (redacted) --port 22"},
		{"option, joined", "prog --api-key=hunter2 --port=22", "prog --api-key=(redacted) --port=22"},
		{"option, apart", "prog --api-key hunter2 --token 'hunter2 x' -verbose", "prog --api-key (redacted) --token '(redacted)' -verbose"},
		{"option in quotes", `sh -c "prog --password hunter2"; ls`, `sh -c "prog --password (redacted)"; ls`},
		{"option in a list", `["prog", "--password", "hunter2 x", "-v"] ['--token', 'hunter2']`, `["prog", "--password", "(redacted)", "-v"] ['--token', '(redacted)']`},
		{"option in a list of YAML", "args:\n- --api-key\n- hunter2\n- -v", "args:\n- --api-key\n- (redacted)\n- -v"},
		{"option on the next line", "prog --password \\\n  hunter2 \\\n  -v", "prog --password \\\n  (redacted) \\\n  -v"},
		{"option without value", "prog --password --host x", "prog --password --host x"},
		{"curl", "curl -s -u me:hunter2 https://host/x", "curl -s -u (redacted) https://host/x"},
		{"curl, joined", "/usr/bin/curl -ume:hunter2 --proxy-user=me:hunter2 https://host/x", "/usr/bin/curl -u(redacted) --proxy-user=(redacted) https://host/x"},
		{"curl, quoted", `curl --user "me:hunter2 x" 'https://host/x'`, `curl --user "(redacted)" 'https://host/x'`},
		{"curl on lines", "curl https://host/x \\\n  -u me:hunter2 \\\n  -v", "curl https://host/x \\\n  -u (redacted) \\\n  -v"},
		{"curl in a list", `["curl", "-u", "me:hunter2", "https://host"]`, `["curl", "-u", "(redacted)", "https://host"]`},
		{"curl in quotes", `{"cmd": "curl -u me:hunter2", "n": 1}`, `{"cmd": "curl -u (redacted)", "n": 1}`},
		{"curl, user alone", "curl -u me https://host/x", "curl -u me https://host/x"},
		{"curl, cookies", "curl -b 'a=b; c=hunter2' https://host", "curl -b '(redacted)' https://host"},
		{"sshpass", "sshpass -p hunter2 ssh host; sshpass -phunter2 ssh host", "sshpass -p (redacted) ssh host; sshpass -p(redacted) ssh host"},
		{"mysql", "mysql -h host -phunter2 db", "mysql -h host -p(redacted) db"},
		{"ipmitool", "ipmitool -H bmc -U admin -P hunter2 power status", "ipmitool -H bmc -U admin -P (redacted) power status"},
		{"docker", "docker login -u me -p hunter2 registry; docker run -p 80:80 x", "docker login -u me -p (redacted) registry; docker run -p 80:80 x"},
		{"smbclient", "smbclient -U me%hunter2 //host/share", "smbclient -U (redacted) //host/share"},
		{"openssl", "openssl enc -pass pass:hunter2 -in x", "openssl enc -pass (redacted) -in x"},

		{"URL, user and password", "https://me:hunter2@host/x", "https://(redacted)@host/x"},
		{"URL, token", "git clone https://hunter2@host/x.git", "git clone https://(redacted)@host/x.git"},
		{"URL, at sign in the password", "postgres://me:hun@ter2hunter2@host:5432/db", "postgres://(redacted)@host:5432/db"},
		{"URL, query", "GET /x?a=b&access_token=hunter2&n=1 HTTP/1.1", "GET /x?a=b&access_token=(redacted)&n=1 HTTP/1.1"},
		{"URL, query in JSON", `{"url": "/x?token=hunter2\u0026n=1"}`, `{"url": "/x?token=(redacted)\u0026n=1"}`},
		{"URL, signature", "https://h.logic.azure.com:443/workflows/x/invoke?sv=1.0&sig=hunter2", "https://h.logic.azure.com:443/workflows/x/invoke?sv=1.0&sig=(redacted)"},
		{"URL of git", "ssh://git@host/x", "ssh://git@host/x"},
		{"proxy without a scheme", "https_proxy=me:hunter2@proxy:3128", "https_proxy=(redacted)@proxy:3128"},
		{"Slack", "posting to https://hooks.slack.com/services/T0/B0/hunter2, then", "posting to https://hooks.slack.com/(redacted) then"},
		{"Discord", "https://discord.com/api/webhooks/123/hunter2 x", "https://discord.com/api/webhooks/(redacted) x"},
		{"Teams", "https://x.webhook.office.com/webhookb2/a@b/IncomingWebhook/hunter2/c", "https://x.webhook.office.com/(redacted)"},
		{"Telegram", "https://api.telegram.org/bot123456:AAhunter2hunter2hunter2hunter2hunte/sendMessage", "https://api.telegram.org/bot(redacted)/sendMessage"},

		{"private key", "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n-----END OPENSSH PRIVATE KEY-----\nafter", "(redacted)\nafter"},
		{"private key without an end", "x -----BEGIN PRIVATE KEY-----\nhunter2", "x (redacted)"},
		{"private key without a beginning", "AAAAhunter2AAAAAAAA\nBBBB=\n-----END RSA PRIVATE KEY-----\nafter", "(redacted)\nafter"},
		{"key of PuTTY", "Private-Lines: 1\nAAAAhunter2\nPrivate-MAC: x", "Private-Lines: 1\n(redacted)\nPrivate-MAC: x"},
		{"netrc", "machine host login me password hunter2", "machine host login me password (redacted)"},
		{"SQL", "CREATE USER me IDENTIFIED BY 'hunter2'", "CREATE USER me IDENTIFIED BY '(redacted)'"},
		{"sudo", "echo hunter2 | sudo -S ls", "echo (redacted) | sudo -S ls"},
		{"sentence", "the password is hunter2", "the password is (redacted)"},
		{"Redis", "requirepass hunter2", "requirepass (redacted)"},

		{"Google", "got AIzaSyhunter2hunter2hunter2hunter2 x", "got (redacted) x"},
		{"Hugging Face and OpenAI", "got hf_hunter2hunter2hunter2 and sk-hunter2hunter2", "got (redacted) and (redacted)"},
		{"JWT", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.hunter2 x", "got (redacted) x"},
		{"password hash", "root:$6$hunter2$abcdefghijklmnopqrstuv:1:", "root:(redacted):1:"},
		{"gitleaks", "used lin_api_hunter2hunter2hunter2hunter2hunter2abcde x", "used (redacted) x"},
		{"gitleaks, near a word", "datadog: 'hunter2hunter2hunter2hunter2hunter212345'", "datadog: '(redacted)'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, string(Redact([]byte(tt.text), nil))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(tt.want, "hunter2") {
				t.Error("the wanted text has the secret")
			}
		})
	}
}

// Lines as NCCL, its launchers, PyTorch, vLLM, the kernel and this project write them have no secret, and stay.
func TestUnchanged(t *testing.T) {
	for line := range strings.Lines(`
n1:24302:24310 [0] NCCL INFO NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn 576 mtu 3 GID 3 (0/1064A8C0FFFF0000) fifoRkey=0x1b9e9c fifoLkey=0x1b9e9c
n1:24302:24310 [0] NCCL INFO NET/IB: IbDev 1 Port 1 qpn 704 query_ece={supported=1, vendor_id=0x15b3, options=0x30000002, comp_mask=0x0}
n1:24302:24302 [0] NCCL INFO comm 0x55d0c8a1f2b0 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
n1:24302:24302 [0] NCCL INFO ncclCommInitRank comm 0x55d0c8a1f2b0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId f01000 commId 0x6bd2ddc1f3d7a3f0 - Init COMPLETE
n1:24302:24302 [0] NCCL INFO Bootstrap: Using enP7s7:192.168.7.9<0>
n1:24302:24302 [0] NCCL INFO NCCL_IB_HCA set by environment to =rocep1s0f0:1,roceP2p1s0f0:1
n1:24302:24302 [0] NCCL INFO NCCL_IB_PKEY set by environment to 0.
n1:24302:24302 [0] NCCL INFO Channel 00/02 : 0 1
n1:24302:24302 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1
n1:24302:24310 [0] transport/net_ib.cc:1311 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<48912> with status=12 opcode=1 len=0 vendor err 129 (Send) localGid ::ffff:10.0.0.1 remoteGids ::ffff:10.0.0.2
n1:24302:24310 [0] NCCL INFO NET/Mesh : init: rocep1s0f0:1 (enp1s0f0np0) 200 Gb/s, cage p0
n1:24302:24310 [0] NCCL WARN NET/Mesh : the handshake failed: wrong MAC: that node has another NCCL_MESH_KEY, or none
n1:24302:24310 [0] NCCL WARN NET/Mesh : NCCL_MESH_KEY: want at least 16 characters
NCCL_DEBUG=INFO
NCCL_ALGO=PAT NCCL_PROTO=Simple
export NCCL_SOCKET_IFNAME=enP7s7 NCCL_NET_PLUGIN=mesh MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 TOKENIZERS_PARALLELISM=false
[rank0]:[E ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0
[W socket.cpp:204] [c10d] The hostname of the client socket cannot be retrieved. err=-3
INFO 10-05 12:00:01 config.py:542] max_num_batched_tokens=16384, max_tokens: 16, skip_tokenizer_init=False, tokenizer_revision=None, hf_overrides=None, hf_config_path=None
INFO 10-05 12:00:01 logger.py:39] Received request cmpl-1: prompt_token_ids: [128000, 9906], sampling_params(stop_token_ids=[], max_tokens=16)
INFO 10-05 12:00:01 model.py:7] loaded model.layers.0.attention.query_key_value.weight: torch.Size([4096, 1024])
[  12.345678] mlx5_core 0000:01:00.0 enp1s0f0np0: Link up
[  12.345678] NVRM: GPU at PCI:0000:0f:01: GPU-5a1b2c3d-1234-5678-9abc-def012345678
BOOT_IMAGE=/boot/vmlinuz-6.17.0-1008-nvidia root=UUID=5a1b2c3d-1234-5678-9abc-def012345678 ro quiet kho=off
Jul 5 01:02:03 n1 sshd[7]: pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh
--- PASS: TestSomething (0.01s)
pass: 12, fail: 0
srun: job 17 queued; SLURM_JOB_NODELIST=n[1-4]
$ mpirun -np 2 -H n1,n2 -x NCCL_DEBUG -x LD_LIBRARY_PATH ./all_reduce_perf -b 8 -e 1G -f 2
$ docker run --network host -p 8000:8000 -u 1000:1000 --ulimit memlock=-1 -e NCCL_DEBUG=INFO image
$ curl -s -u me http://10.0.0.1:8000/v1/models
ssh: connect to git@host port 22: Connection refused
std::runtime_error: c10::Error: key: not found
token: null, "password": null, auth=none, cookie: none
password: wrong
use --password to name one, or --token and a file
nvidia-nccl-cu13==2.28.9 torch==2.11.0+cu130
100 4096 1024 float sum -1 17.5 0.23 0.23 0
`) {
		if got := string(Redact([]byte(line), nil)); got != line {
			t.Errorf("%q is changed to %q", line, got)
		}
	}
}

// contexts are lines with a secret, for which % stands.
var contexts = []string{
	"DB_PASS=%", "export MYSQL_PWD=%; ls", "token: %", "password='%'", `API_KEY="%"`, `{"auth_token": "%"}`, `{"a": "TOKEN=\"%\""}`, "['SSHPASS=%']",
	`{"name": "DB_PASS", "value": "%"}`, "Authorization: Token %", `-H "Authorization: Bearer %"`, "Cookie: a=b; c=%", "x --password % y", "x --api-key=%",
	`["--token", "%"]`, "curl -u me:% x", "curl -ume:%", "https://%@host/", "https://me:%@host/", "https://hooks.slack.com/services/%", "/x?token=%&y=z",
	"sshpass -p %", "mysql -p%", "<password>%</password>", "-----BEGIN PRIVATE KEY-----%-----END PRIVATE KEY-----", "login me password %",
}

// Whatever stands on the line before and after, a secret is found.
func FuzzRedact(f *testing.F) {
	f.Add("", "hunter2x", "")
	f.Add("it's \"", "a-b_c1234", "\"'")
	f.Add("\\", "key=token", " \\\n")
	f.Add("-----BEGIN PRIVATE KEY-----\n", "none1234", "password=")
	f.Fuzz(func(t *testing.T, before, value, after string) {
		value = strings.Map(func(r rune) rune {
			if r < 0x80 && (isWord(byte(r)) || r == '-') {
				return r
			}
			return -1
		}, value)
		if value = "Zq7" + value; len(value) < 8 || len(value) > 60 {
			return
		}
		for _, context := range contexts {
			line := strings.ReplaceAll(context, "%", value)
			if strings.Contains(before+strings.ReplaceAll(context, "%", "")+after, value) {
				continue
			}
			if got := Redact([]byte(before+" "+line+" "+after), nil); strings.Contains(string(got), value) {
				t.Errorf("%q after %q and before %q: %q", line, before, after, got)
			}
		}
	})
}
