package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/report"
	"ncclmesh/transport/topology"
)

// Secrets are planted wherever the report looks, each in another way. None is in it, nor in what the command says.
func TestReportHoldsNoSecret(t *testing.T) {
	root := t.TempDir()
	n := 0
	var planted []string
	secret := func() string {
		n++
		planted = append(planted, fmt.Sprintf("Zx9-planted-%d-qK", n))
		return planted[n-1]
	}
	write := func(name, text string) string {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	inEnv := secret()
	environ := []string{
		"HOME=" + filepath.Join(root, "home"), "NCCL_MESH_KEY=" + inEnv, "VLLM_API_KEY=" + secret(), "HF_TOKEN=" + secret(), "WANDB_PASSWORD=" + secret(),
		"NCCL_DEBUG_FILE=/logs/" + inEnv, "NCCL_DEBUG=INFO", "MYSQL_PWD=" + secret(), "SSHPASS=" + secret(), "DB_PASS=" + secret(), "PASSPHRASE=" + secret(),
		"DATABASE_URL=postgres://me:" + secret() + "@host/db", "NCCL_X=--password " + secret(), "LOCAL_X=" + secret(), "GOOGLE_API_KEY=" + secret(),
		"TOKENIZERS_PARALLELISM=false",
	}
	write("etc/nccl.conf", "NCCL_MESH_KEY="+inEnv+"\nNCCL_ALGO=Ring\nNCCL_OTHER_TOKEN="+secret()+"\n")
	write("home/.nccl.conf", "NCCL_PROTO=LL\nNCCL_SECRET="+secret()+"\n")
	write("etc/os-release", "NAME=Test\nSUPPORT_TOKEN="+secret()+"\n")
	write("proc/version", "Linux "+inEnv+"\n")
	write("proc/cmdline", "ro luks.key="+secret()+" quiet\n")
	write("proc/meminfo", "MemTotal: 1 kB\n")
	write("sys/class/dmi/id/product_name", "Test https://me:"+secret()+"@host/\n")
	write("sys/class/infiniband/mlx5_0/fw_ver", "28 token: "+secret()+"\n")
	write("sys/class/infiniband/mlx5_0/node_guid", "1020:3040:5060:7080\n")
	write("sys/class/infiniband/mlx5_0/ports/1/gids/0", "2001:0db8:0000:0000:1020:3040:5060:7080\n")
	write("sys/class/net/eth9/mtu", "9000\n")
	own := append(ownAddresses(t), "1020304050607080", "1020:3040:5060:7080", "20010db8000000001020304050607080", "2001:db8::1020:3040:5060:7080")
	lines := ""
	for _, line := range []string{"Authorization: Token %", "run --password % --port 22", "run --api-key %", "curl -s -u me:% https://host/x", "git clone https://%@host/x",
		"MYSQL_PWD=%", "SSHPASS=% ssh x", "export DB_PASS='%'", "PASSPHRASE=\"a b %\"", "https://hooks.slack.com/services/T0/B0/%",
		"https://discord.com/api/webhooks/1/%", "https://x.webhook.office.com/webhookb2/%", "AIza%%%%", "Cookie: a=b; c=d; e=%", `{"Set-Cookie": "a=b; c=%"}`} {
		lines += strings.ReplaceAll(line, "%", secret()) + "\n"
	}
	log := write("logs/token="+secret()+".log", lines+strings.Join(own, " at ")+"\nMASTER_PORT=29500 kept, mlx5_0:1 and false, too\nNCCL INFO "+inEnv+"\nAuthorization: Bearer "+secret()+"\n-----BEGIN PRIVATE KEY-----\n"+secret()+"\n-----END PRIVATE KEY-----\n")
	more := []report.Source{{Name: "doctor.json", Read: func(context.Context) ([]byte, error) {
		return []byte(`{"env": {"API_KEY": "` + secret() + `"}}`), errors.New("password=" + secret())
	}}}
	var stdout, stderr bytes.Buffer
	sys := &system{environ, &stdout, &stderr}
	if err := runReport(t.Context(), sys, reportFlags{output: "-", logs: []string{log}, root: root, addresses: true}, more); err != nil {
		t.Fatal(err)
	}
	files := untar(t, stdout.Bytes())
	files["standard error"] = stderr.String()
	for name, content := range files {
		for _, s := range planted {
			if strings.Contains(name+content, s) {
				t.Errorf("%s holds %s:\n%s", name, s, content)
			}
		}
		for _, a := range own {
			if strings.Contains(strings.ToLower(content), a) {
				t.Errorf("%s holds %s of this node:\n%s", name, a, content)
			}
		}
	}
	// What is not secret is there.
	for name, want := range map[string]string{
		"environment.txt": "NCCL_ALGO=Ring # " + root + "/etc/nccl.conf\nNCCL_DEBUG=INFO\n", "logs/1-token=(redacted)": "\nMASTER_PORT=29500 kept, mlx5_0:1 and false, too\n",
		"standard error": "\nlogs/1-token=(redacted) ", "files/etc/os-release": "NAME=Test\n", "infiniband.txt": "fw_ver: 28 token: ",
		"net.txt": "/mtu: 9000\n", "files/proc/cmdline": " quiet\n", "version.txt": "ncclmesh ", "doctor.json": `{"env": {"API_KEY": "(redacted)"}}`, "node.json": `"Links": [`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: %q, and not %q in it", name, files[name], want)
		}
	}
	for _, name := range []string{"MYSQL_PWD", "SSHPASS", "DB_PASS", "PASSPHRASE", "DATABASE_URL", "LOCAL_X", "GOOGLE_API_KEY", "HF_TOKEN", "HOME"} {
		if strings.Contains(files["environment.txt"], name) {
			t.Errorf("environment.txt has %s:\n%s", name, files["environment.txt"])
		}
	}
	if want := "\n# and 12 variables that are not shown\n"; !strings.HasSuffix(files["environment.txt"], want) {
		t.Errorf("environment.txt does not end in %q:\n%s", want, files["environment.txt"])
	}
	var index report.Index
	if err := json.Unmarshal([]byte(files["index.json"]), &index); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range index.Items {
		got = append(got, i.Name)
	}
	want := []string{"version.txt", "environment.txt", "node.json", "infiniband.txt", "net.txt", "files/etc/os-release", "files/proc/version", "files/proc/cmdline",
		"files/proc/meminfo", "files/sys/class/dmi/id/product_name", "logs/1-token=(redacted)", "doctor.json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the index (-want +got):\n%s", diff)
	}
}

// ownAddresses are those that tell something of this machine, in lower case and in several spellings.
func ownAddresses(t *testing.T) []string {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, i := range interfaces {
		if m := i.HardwareAddr.String(); len(m) == 17 && strings.Trim(m, "0:") != "" {
			digits := strings.ReplaceAll(m, ":", "")
			list = append(list, m, digits, digits[:4]+"."+digits[4:8]+"."+digits[8:], strings.ReplaceAll(m, ":", "-"))
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
				list = append(list, n.IP.String())
				if n.IP.To4() != nil {
					list = append(list, "ip-"+strings.ReplaceAll(n.IP.String(), ".", "-"))
				}
			}
		}
	}
	return list
}

// A list is printed where the archive would be, and nothing is written.
func TestReportList(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	log := filepath.Join(dir, "x.log")
	if err := os.WriteFile(log, []byte("DB_PASS=hunter2 --token hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	sys := &system{[]string{"NCCL_DEBUG=INFO"}, &stdout, &stderr}
	if err := runReport(t.Context(), sys, reportFlags{list: true, logs: []string{log}, root: dir}, nil); err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`(?m)^FILE .*\n(?:.*\n)*logs/1-x\.log +38 +2 secrets +a log that you named\n$`); !want.Match(stdout.Bytes()) || stderr.Len() > 0 {
		t.Errorf("%s\n%s", &stdout, &stderr)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("there are files %v, %v", files, err)
	}
}

// Addresses are written as people write them, not as numbers that nobody recognises.
func TestNodeView(t *testing.T) {
	gid := topology.Address{Addr: netip.MustParseAddr("fe80::1")}
	node := topology.Node{
		Ports: []topology.Port{{Device: "mlx5_0", GIDs: []topology.Address{gid}, SysImageGUID: 0x025abe0300ef0001, NodeGUID: 0x025abe0300ef0002}},
		Plain: []topology.Port{{Netdev: "eth0", GIDs: []topology.Address{gid}}},
		Links: []topology.Link{{Name: "eth0", MAC: [6]byte{2, 0x5a, 0xbe, 0xef, 0, 1}}},
	}
	text, err := json.Marshal(viewOf(&node))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Device":"mlx5_0"`, `"SysImageGUID":"025a:be03:00ef:0001"`, `"NodeGUID":"025a:be03:00ef:0002"`, `"MAC":"02:5a:be:ef:00:01"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if numbers := regexp.MustCompile(`\[[0-9]|"[A-Za-z]*GUID":[0-9]`).Find(text); numbers != nil {
		t.Errorf("%s... in %s", numbers, text)
	}
}

// untar returns the files of an archive, without the directory that they are in.
func untar(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		text, err2 := io.ReadAll(r)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}
