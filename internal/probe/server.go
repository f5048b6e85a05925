// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// patience of a server with one connection.
const patience = 10 * time.Second

// maxConnections that a server has at a time; more wait.
const maxConnections = 256

// A request begins with the run's token and, on a stream, the length of the payload. An answer begins with the server's
// name and its length, and ends with the payload. Without the token there is no answer, and no answer is a request: two
// servers cannot be made to answer each other.
const lengthSize = 4

// download as a length, on a stream, asks for zeros without end instead. A server sends them for maxDownload at most.
const (
	download    = 1<<32 - 1
	maxDownload = time.Minute
)

// Server answers requests that have its token, and says its name.
type Server struct {
	Name, Token string
}

// Run listens on TCP and UDP until ctx ends.
func (s Server) Run(ctx context.Context, port int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address := ":" + strconv.Itoa(port)
	var listen net.ListenConfig
	streams, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	datagrams, err := listen.ListenPacket(ctx, "udp", address)
	if err != nil {
		_ = streams.Close()
		return fmt.Errorf("listen: %w", err)
	}
	return s.serve(ctx, streams, datagrams)
}

// serve answers on the sockets, which it closes when ctx ends.
func (s Server) serve(ctx context.Context, streams net.Listener, datagrams net.PacketConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- s.acceptStreams(streams) }()
	go func() { ended <- s.answerDatagrams(datagrams) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	_ = streams.Close()
	_ = datagrams.Close()
	return err
}

func (s Server) acceptStreams(l net.Listener) error {
	slots := make(chan struct{}, maxConnections)
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		slots <- struct{}{}
		open.Go(func() {
			defer func() { <-slots }()
			defer conn.Close() //nolint:errcheck // the client has its answer, or does not
			_ = conn.SetDeadline(time.Now().Add(patience))
			// What is no request, or a client that went away, is none of the server's business.
			_ = s.answerStream(conn)
		})
	}
}

func (s Server) answerStream(conn net.Conn) error {
	head := make([]byte, len(s.Token)+lengthSize)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	if string(head[:len(s.Token)]) != s.Token {
		return errors.New("another token")
	}
	length := binary.BigEndian.Uint32(head[len(s.Token):])
	if length == download {
		return endless(conn)
	}
	if length > largeStream {
		return errors.New("too long")
	}
	if _, err := conn.Write(s.head()); err != nil {
		return err
	}
	_, err := io.CopyN(conn, conn, int64(length))
	return err
}

// endless sends until the client has had enough.
func endless(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(maxDownload)); err != nil {
		return err
	}
	zeros := make([]byte, 64<<10)
	for {
		if _, err := conn.Write(zeros); err != nil {
			return err
		}
	}
}

func (s Server) answerDatagrams(conn net.PacketConn) error {
	request := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(request)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if n < len(s.Token) || n > len(s.Token)+largeDatagram || string(request[:len(s.Token)]) != s.Token {
			continue
		}
		// One that cannot be sent is lost, as datagrams are: the client tries again.
		_, _ = conn.WriteTo(append(s.head(), request[len(s.Token):n]...), from)
	}
}

// head begins every answer.
func (s Server) head() []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s.Name))), s.Name...)
}
