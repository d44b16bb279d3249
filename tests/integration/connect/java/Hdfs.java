import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A whole HDFS in one process: prints the port of WebHDFS, and ends with its standard input. */
public class Hdfs {
  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    configuration.set("hadoop.http.staticuser.user", "tester");
    MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, new File(arguments[0])).numDataNodes(1).build();
    cluster.waitActive();
    System.out.println("webhdfs " + cluster.getNameNode().getHttpAddress().getPort());
    System.in.read();
    cluster.shutdown();
  }
}
