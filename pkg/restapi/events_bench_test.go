package restapi

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// streamClient is the environment variable with the protocol and the address for a process that holds streams. The clients are in that process
	// while memory is measured.
	streamClient = "TEST_STREAM_CLIENT"
)

// openers open a stream, by the name of the protocol.
var openers = map[string]func(address, token string) (*benchStream, error){"http/1.1": openHTTP1, "h2": openHTTP2}

// BenchmarkEvents opens as many streams as a replica has, and measures the memory of each, and the time from a commit to the hints about it
// while half of the streams are never read. "make bench PART=api" has the bounds.
func BenchmarkEvents(b *testing.B) {
	for protocol := range openers {
		b.Run(protocol, func(b *testing.B) { benchmarkEvents(b, protocol) })
	}
}

func benchmarkEvents(b *testing.B, protocol string) {
	w, reviewer := newFakeHarness(b)
	w.startWatcher()
	server := httptest.NewUnstartedServer(w.handler)
	server.Config.WriteTimeout, server.EnableHTTP2 = time.Minute, true
	server.StartTLS()
	b.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "web")
	reviewer.mu.Lock()
	for i := range events.MaxStreams {
		reviewer.tokens[userOfStream(i)] = authenticationv1.UserInfo{Username: userOfStream(i)}
	}
	reviewer.mu.Unlock()
	perStream := memoryPerStream(b, protocol, address)
	var streams []*benchStream
	for i := range events.MaxStreams {
		streams = append(streams, openBenchStream(b, protocol, address, i))
	}

	read := streams[:events.MaxStreams/2]
	var mu sync.Mutex
	var committed time.Time
	var took []time.Duration
	var arrived sync.WaitGroup
	for _, s := range read {
		go s.follow(func() {
			mu.Lock()
			took = append(took, time.Since(committed))
			mu.Unlock()
			arrived.Done()
		})
	}
	i := 0
	for b.Loop() {
		i++
		arrived.Add(len(read))
		w.setUsed(scanner, "web", store.Cluster, fmt.Sprint("workload-", i))
		mu.Lock()
		committed = time.Now()
		mu.Unlock()
		arrived.Wait()
	}
	slices.Sort(took)
	p95 := took[len(took)*95/100]
	b.ReportMetric(float64(perStream)/1024, "KiB/stream")
	b.ReportMetric(float64(p95.Milliseconds()), "ms-p95")
	b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "ms-max")
}

// memoryPerStream returns how much memory this process needs for each stream that another process opens.
func memoryPerStream(b *testing.B, protocol, address string) int64 {
	b.Helper()
	before := memoryInUse()
	client := exec.CommandContext(b.Context(), os.Args[0])
	client.Env, client.Stderr = append(os.Environ(), streamClient+"="+protocol+" "+address), os.Stderr
	input, err := client.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	output, err := client.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := client.Start(); err != nil {
		b.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "open\n" {
		b.Fatalf("the process with the clients: %q %v", line, err)
	}
	perStream := (memoryInUse() - before) / events.MaxStreams
	_ = input.Close()
	if err := client.Wait(); err != nil {
		b.Fatal(err)
	}
	return perStream
}

// holdStreams opens as many streams as a replica has, says so and holds them until its input ends. It reads nothing but the first event of each.
func holdStreams(of string) error {
	protocol, address, _ := strings.Cut(of, " ")
	var streams []*benchStream
	for i := range events.MaxStreams {
		s, err := openers[protocol](address, userOfStream(i))
		if err != nil {
			return err
		}
		streams = append(streams, s)
	}
	fmt.Println("open")
	_, err := io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(streams)
	return err
}

func userOfStream(i int) string { return fmt.Sprint("user", i/events.MaxStreamsPerUser) }

// memoryInUse returns the memory of the heap and of stacks after a collection.
func memoryInUse() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// benchStream is a stream with a client that takes little memory.
type benchStream struct {
	connection net.Conn
	// next returns the next text of the stream.
	next func() (string, error)
}

// openBenchStream opens a stream once the server has seen that those of the other process have ended.
func openBenchStream(b *testing.B, protocol, address string, i int) *benchStream {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		s, err := openers[protocol](address, userOfStream(i))
		if err == nil {
			b.Cleanup(func() { _ = s.connection.Close() })
			return s
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
}

func dialBench(address, protocol string) (*tls.Conn, error) {
	return tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
}

func openHTTP1(address, token string) (*benchStream, error) {
	connection, err := dialBench(address, "http/1.1")
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", PathEvents, token); err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(connection, 512)
	s := &benchStream{connection, func() (string, error) { return reader.ReadString('\n') }}
	return s, s.awaitHello()
}

func openHTTP2(address, token string) (*benchStream, error) {
	connection, err := dialBench(address, "h2")
	if err != nil {
		return nil, err
	}
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", PathEvents}, {":authority", "x"}, {"authorization", "Bearer " + token}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return nil, err
		}
	}
	if _, err := io.WriteString(connection, http2.ClientPreface); err != nil {
		return nil, err
	}
	framer := http2.NewFramer(connection, connection)
	err = errors.Join(framer.WriteSettings(), framer.WriteSettingsAck(), framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: headers.Bytes(), EndStream: true, EndHeaders: true,
	}))
	if err != nil {
		return nil, err
	}
	s := &benchStream{connection, func() (string, error) {
		frame, err := framer.ReadFrame()
		if data, ok := frame.(*http2.DataFrame); ok && err == nil {
			return string(data.Data()), nil
		}
		return "", err
	}}
	return s, s.awaitHello()
}

// awaitHello returns an error, and closes the connection, unless the stream begins.
func (s *benchStream) awaitHello() error {
	for {
		text, err := s.next()
		if strings.Contains(text, "TooManyRequests") || strings.Contains(text, "Unavailable") {
			err = errors.New(text)
		}
		if err != nil {
			_ = s.connection.Close()
			return fmt.Errorf("opening a stream: %w", err)
		}
		if strings.Contains(text, "hello") {
			return nil
		}
	}
}

// follow calls arrived for each event with changes, until the stream ends.
func (s *benchStream) follow(arrived func()) {
	for {
		text, err := s.next()
		if err != nil {
			return
		}
		if strings.Contains(text, `"changed"`) {
			arrived()
		}
	}
}
