// SPDX-License-Identifier: Apache-2.0

// Command whereami is a server that tells who answered whom. On one port it
// serves HTTP and, over UDP, an echo. The downward API fills its environment:
// POD_NAME, NODE_NAME, POD_NAMESPACE and CLUSTER_NAME.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// maxBody bounds what one request may ask for.
const maxBody = 1 << 30

// answer says where a request was answered and whose address it came from.
type answer struct {
	Pod       string `json:"pod"`
	Node      string `json:"node"`
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Client    string `json:"client"`
}

func main() {
	listen := flag.String("listen", ":8080", "address of the HTTP server and the UDP echo")
	flag.Parse()
	if err := serve(*listen); err != nil {
		log.Fatal(err)
	}
}

func serve(address string) error {
	udp, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	failed := make(chan error, 2)
	go func() { failed <- echo(udp) }()
	server := &http.Server{Addr: address, Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { failed <- server.ListenAndServe() }()
	return <-failed
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", whereami)
	mux.HandleFunc("/body", body)
	mux.HandleFunc("/stream", stream)
	mux.HandleFunc("/upload", upload)
	return mux
}

func whereami(w http.ResponseWriter, r *http.Request) {
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	err = json.NewEncoder(w).Encode(answer{
		Pod:       os.Getenv("POD_NAME"),
		Node:      os.Getenv("NODE_NAME"),
		Namespace: os.Getenv("POD_NAMESPACE"),
		Cluster:   os.Getenv("CLUSTER_NAME"),
		Client:    client,
	})
	if err != nil {
		log.Printf("answer %s: %v", client, err)
	}
}

// body answers with ?bytes=N zero bytes.
func body(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || n < 0 || n > maxBody {
		http.Error(w, fmt.Sprintf("bytes: expected 0 to %d", maxBody), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	if _, err := io.CopyN(w, zeros{}, n); err != nil {
		log.Printf("send body: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// stream answers with a line every 100 ms for ?seconds=N.
func stream(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	if err != nil || seconds < 0 || seconds > 3600 {
		http.Error(w, "seconds: expected 0 to 3600", http.StatusBadRequest)
		return
	}
	flusher := http.NewResponseController(w)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := range seconds * 10 {
		if _, err := fmt.Fprintf(w, "%d\n", n); err != nil {
			return
		}
		if err := flusher.Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// upload reads a body and answers how long it was.
func upload(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%d\n", n)
}

// echo sends every datagram back to where it came from.
func echo(conn net.PacketConn) error {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if _, err := conn.WriteTo(buf[:n], from); err != nil {
			log.Printf("echo to %s: %v", from, err)
		}
	}
}
