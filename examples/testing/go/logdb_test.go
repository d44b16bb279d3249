// A Kafka for one test: `logdb serve --temporary` (pip install '.[cli,http]').
package orders

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func startLogdb(t *testing.T) string {
	t.Helper()
	server := exec.Command("logdb", "serve", "--temporary", "--kafka", "127.0.0.1:0", "--json")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
	var said struct{ Kafka string }
	if err := json.NewDecoder(out).Decode(&said); err != nil {
		t.Fatal("logdb ended: ", err)
	}
	return said.Kafka
}
