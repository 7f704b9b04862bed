// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

// A server and a client of HTTP in Go, to be linked statically: web serve PORT FILE, web ask HOST PORT FILE SECONDS.
package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	clients = 8
	small   = 1000
	large   = 1 << 20
)

func serve(port, file string) error {
	http.HandleFunc("/file", func(answer http.ResponseWriter, request *http.Request) {
		http.ServeFile(answer, request, file)
	})
	http.HandleFunc("/echo", func(answer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			log.Print(err)
			return
		}
		answer.Write(body)
	})
	return http.ListenAndServe(":"+port, nil)
}

func digest(source io.Reader) ([]byte, int64, error) {
	hash := sha256.New()
	size, err := io.Copy(hash, source)
	return hash.Sum(nil), size, err
}

// fetch gives octets per second.
func fetch(url, path string) (float64, error) {
	begin := time.Now()
	answer, err := http.Get(url + "/file")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	got, size, err := digest(answer.Body)
	if err != nil {
		return 0, err
	}
	speed := float64(size) / time.Since(begin).Seconds()
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	wanted, _, err := digest(file)
	if err == nil && !bytes.Equal(got, wanted) {
		err = fmt.Errorf("the file is another")
	}
	return speed, err
}

func echo(client *http.Client, url string, size int) error {
	body := make([]byte, size)
	rand.Read(body)
	answer, err := client.Post(url+"/echo", "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err == nil && !bytes.Equal(got, body) {
		err = fmt.Errorf("%d octets came back as %d others", len(body), len(got))
	}
	return err
}

func ask(host, port, file string, seconds float64) error {
	url := "http://" + host + ":" + port
	speed, err := fetch(url, file)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	if err := echo(client, url, large); err != nil {
		return err
	}
	type ended struct {
		count int
		err   error
	}
	ends := make(chan ended)
	begin := time.Now()
	for i := 0; i < clients; i++ {
		go func() {
			end := ended{}
			for ; end.err == nil && time.Since(begin).Seconds() < seconds; end.count++ {
				end.err = echo(client, url, small)
			}
			ends <- end
		}()
	}
	count := 0
	for i := 0; i < clients; i++ {
		end := <-ends
		count += end.count
		if end.err != nil {
			err = end.err
		}
	}
	fmt.Printf("{\"speed\": %.0f, \"rate\": %.1f}\n", speed, float64(count)/time.Since(begin).Seconds())
	return err
}

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "serve":
		err = serve(os.Args[2], os.Args[3])
	case len(os.Args) == 6 && os.Args[1] == "ask":
		var seconds float64
		if seconds, err = strconv.ParseFloat(os.Args[5], 64); err == nil {
			err = ask(os.Args[2], os.Args[3], os.Args[4], seconds)
		}
	default:
		err = fmt.Errorf("usage: web serve PORT FILE | web ask HOST PORT FILE SECONDS")
	}
	if err != nil {
		log.Fatal(err)
	}
}
