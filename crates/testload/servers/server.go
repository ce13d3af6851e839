// Go's own HTTP server: a goroutine for each connection. A request compresses random words, about
// 0.5 to 3 ms.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand"
	"net/http"
	"os"
)

func answer(response http.ResponseWriter, request *http.Request) {
	var text, packed bytes.Buffer
	count := 1000 + rand.Intn(4000)
	for n := 0; n < count; n++ {
		fmt.Fprintf(&text, "word %d ", rand.Intn(100000))
	}
	writer := gzip.NewWriter(&packed)
	writer.Write(text.Bytes())
	writer.Close()
	body := fmt.Sprintf("%d\n", packed.Len())
	response.Header().Set("Content-Length", fmt.Sprint(len(body)))
	fmt.Fprint(response, body)
}

func main() {
	http.HandleFunc("/", answer)
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
