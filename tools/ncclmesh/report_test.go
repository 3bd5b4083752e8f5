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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/report"
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
		"NCCL_DEBUG_FILE=/logs/" + inEnv, "NCCL_DEBUG=INFO",
	}
	write("etc/nccl.conf", "NCCL_MESH_KEY="+inEnv+"\nNCCL_ALGO=Ring\nNCCL_OTHER_TOKEN="+secret()+"\n")
	write("home/.nccl.conf", "NCCL_PROTO=LL\nNCCL_SECRET="+secret()+"\n")
	write("etc/os-release", "NAME=Test\nSUPPORT_TOKEN="+secret()+"\n")
	write("proc/version", "Linux "+inEnv+"\n")
	write("proc/cmdline", "ro luks.key="+secret()+" quiet\n")
	write("proc/meminfo", "MemTotal: 1 kB\n")
	write("sys/class/dmi/id/product_name", "Test https://me:"+secret()+"@host/\n")
	write("sys/class/infiniband/mlx5_0/fw_ver", "28 token: "+secret()+"\n")
	write("sys/class/net/eth9/mtu", "9000\n")
	log := write("logs/token="+secret()+".log", "NCCL INFO "+inEnv+"\nAuthorization: Bearer "+secret()+"\n-----BEGIN PRIVATE KEY-----\n"+secret()+"\n-----END PRIVATE KEY-----\n")
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
		for _, a := range ownAddresses(t) {
			if strings.Contains(content, a) {
				t.Errorf("%s holds an address of this node", name)
			}
		}
	}
	// What is not secret is there.
	for name, want := range map[string]string{
		"environment.txt": "NCCL_ALGO=Ring # " + root + "/etc/nccl.conf\nNCCL_DEBUG=INFO\n", "files/etc/os-release": "NAME=Test\n", "infiniband.txt": "fw_ver: 28 token: ",
		"net.txt": "/mtu: 9000\n", "files/proc/cmdline": " quiet\n", "version.txt": "ncclmesh ", "doctor.json": `{"env": {"API_KEY": "(redacted)"}}`, "node.json": `"Links": [`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: %q, and not %q in it", name, files[name], want)
		}
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

// ownAddresses are those that tell something of this machine.
func ownAddresses(t *testing.T) []string {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, i := range interfaces {
		if m := i.HardwareAddr.String(); strings.Trim(m, "0:") != "" {
			list = append(list, m)
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
				list = append(list, n.IP.String())
			}
		}
	}
	return list
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
